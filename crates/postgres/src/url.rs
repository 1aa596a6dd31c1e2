//! The address of a database: its parts that may be shown, and its settings for TLS.

use std::time::Duration;

use loopstore_core::store::OpenError;
use native_tls::{Certificate, TlsConnector};
use postgres_native_tls::MakeTlsConnector;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::{Config, NoTls};

use super::connection::Connection;
use super::pooler::Pooling;

/// The default limit for one attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The default time limit for sent bytes that the other machine does not acknowledge.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(30);

/// The address of a database, parsed.
pub(super) struct Address {
    /// One configuration for each host: each has its own time limit.
    hosts: Vec<Config>,
    tls: Option<MakeTlsConnector>,
    /// Hosts, ports and name, without user and password.
    pub(super) place: String,
    pub(super) pooling: Pooling,
    /// True if the address sets options of its connections.
    pub(super) has_options: bool,
}

/// True if a text is the address of a PostgreSQL database.
///
/// ```
/// use loopstore_postgres::is_address;
///
/// assert!(is_address("postgres://localhost/agents"));
/// assert!(!is_address("agents.db"));
/// ```
pub fn is_address(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

fn unreadable(detail: impl Into<String>) -> OpenError {
    OpenError::Address {
        detail: detail.into(),
    }
}

impl Address {
    /// Parses an address.
    ///
    /// `sslmode` has the same meaning as for `psql`: `prefer` and `require` accept any certificate, `verify-ca`
    /// and `verify-full` one that the system trusts, or the file of `sslrootcert`.
    ///
    /// # Errors
    /// If the address is invalid.
    pub(super) fn parse(text: &str, writes: bool) -> Result<Self, OpenError> {
        let (text, own) = OwnOptions::extract_from(text)?;
        let parsed: Result<Config, _> = text.parse();
        let mut config = parsed.map_err(|error| unreadable(why(&error)))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(unreadable("it names no host"));
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(TCP_USER_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("loopstore");
        }
        let tls = connector(&mut config, own.mode.as_deref(), own.root.as_deref())?;
        let place = place_of(&config);
        let count = config.get_hosts().len().max(config.get_hostaddrs().len());
        // Of several servers, only the primary accepts writes.
        if writes && count > 1 && config.get_target_session_attrs() == TargetSessionAttrs::Any {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let hosts = (0..count).map(|at| host_of(&config, at)).collect();
        Ok(Self {
            hosts,
            tls,
            place,
            pooling: own.pooling,
            has_options: config.get_options().is_some(),
        })
    }

    /// Connects to the first host that accepts the connection. `limit` is the time limit of a statement.
    ///
    /// # Errors
    /// If no server can be reached in time, or the last one rejects the connection.
    pub(super) fn connect(&self, limit: Option<Duration>) -> Result<Connection, OpenError> {
        let mut last = None;
        for host in &self.hosts {
            match self.connect_to(host, limit) {
                Ok(link) => return Ok(link),
                // All servers of a cluster have the same roles: a rejection by one is final.
                Err(error @ OpenError::Refused { .. }) => return Err(error),
                // A standby may not have received a new database yet.
                Err(error) if !matches!(last, Some(OpenError::NoDatabase { .. })) => {
                    last = Some(error);
                }
                Err(_) => {}
            }
        }
        Err(last.unwrap_or_else(|| unreadable("it names no host")))
    }

    fn connect_to(&self, host: &Config, limit: Option<Duration>) -> Result<Connection, OpenError> {
        let within = host
            .get_connect_timeout()
            .copied()
            .unwrap_or(CONNECT_TIMEOUT);
        let link = match self.tls.clone() {
            Some(tls) => Connection::connect(host, tls, within, limit),
            None => Connection::connect(host, NoTls, within, limit),
        };
        link.map_err(|error| super::errors::from_connecting(&self.place, error))
    }
}

/// Returns the configuration for one of several hosts.
fn host_of(config: &Config, at: usize) -> Config {
    let mut one = Config::new();
    match config.get_hosts().get(at) {
        Some(Host::Tcp(name)) => {
            one.host(name);
        }
        Some(Host::Unix(path)) => {
            one.host_path(path);
        }
        None => {}
    }
    if let Some(address) = config.get_hostaddrs().get(at) {
        one.hostaddr(*address);
    }
    match config.get_ports() {
        [port] => {
            one.port(*port);
        }
        ports => {
            if let Some(port) = ports.get(at) {
                one.port(*port);
            }
        }
    }
    if let Some(user) = config.get_user() {
        one.user(user);
    }
    if let Some(password) = config.get_password() {
        one.password(password);
    }
    if let Some(name) = config.get_dbname() {
        one.dbname(name);
    }
    if let Some(options) = config.get_options() {
        one.options(options);
    }
    if let Some(name) = config.get_application_name() {
        one.application_name(name);
    }
    if let Some(limit) = config.get_connect_timeout() {
        one.connect_timeout(*limit);
    }
    if let Some(limit) = config.get_tcp_user_timeout() {
        one.tcp_user_timeout(*limit);
    }
    one.ssl_mode(config.get_ssl_mode())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding());
    one
}

/// Describes the error of an address. A part that the driver could not parse may belong to a password; the name
/// of an option that it knows does not.
fn why(error: &tokio_postgres::Error) -> String {
    let text = super::errors::driver_text(error);
    match text.find("invalid value for option") {
        Some(at) => text[at..].to_owned(),
        None => "user, host, port, name or an option of it is not as it should be; a password's \
                 special signs stand as %XX"
            .to_owned(),
    }
}

/// The parameters of an address that the driver does not know, or supports only in part.
#[derive(Default)]
struct OwnOptions {
    mode: Option<String>,
    root: Option<String>,
    pooling: Pooling,
}

impl OwnOptions {
    /// Removes the parameters from an address; returns the rest and the parameters.
    fn extract_from(text: &str) -> Result<(String, Self), OpenError> {
        let mut own = Self::default();
        let Some((front, query)) = text.split_once('?') else {
            return Ok((text.to_owned(), own));
        };
        let mut rest = Vec::new();
        for pair in query.split('&') {
            match pair.split_once('=') {
                Some(("sslmode", value)) => own.mode = Some(value.to_owned()),
                Some(("sslrootcert", value)) => own.root = Some(decoded(value)?),
                Some(("pooling", value)) => {
                    let why = "pooling is one of session and transaction";
                    own.pooling = Pooling::parse(value).ok_or_else(|| unreadable(why))?;
                }
                _ => rest.push(pair),
            }
        }
        Ok((format!("{front}?{}", rest.join("&")), own))
    }
}

/// Decodes the percent signs of a value of an address.
fn decoded(value: &str) -> Result<String, OpenError> {
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let hex = (*first == b'%').then(|| rest.get(..2)).flatten();
        let byte = hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(match byte {
            Some(byte) => {
                rest = rest.get(2..).unwrap_or_default();
                byte
            }
            None => *first,
        });
    }
    String::from_utf8(bytes).map_err(|_| unreadable("sslrootcert is not a path"))
}

fn connector(
    config: &mut Config,
    mode: Option<&str>,
    root: Option<&str>,
) -> Result<Option<MakeTlsConnector>, OpenError> {
    let (mode, trusts, knows_host) = match mode {
        Some("disable") => {
            config.ssl_mode(SslMode::Disable);
            return Ok(None);
        }
        None | Some("allow" | "prefer") => (SslMode::Prefer, true, true),
        Some("require") => (SslMode::Require, root.is_none(), true),
        Some("verify-ca") => (SslMode::Require, false, true),
        Some("verify-full") => (SslMode::Require, false, false),
        Some(_) => {
            let why = "sslmode is one of disable, prefer, require, verify-ca and verify-full";
            return Err(unreadable(why));
        }
    };
    config.ssl_mode(mode);
    let mut builder = TlsConnector::builder();
    builder
        .danger_accept_invalid_certs(trusts)
        .danger_accept_invalid_hostnames(knows_host);
    if let Some(root) = root {
        let text = std::fs::read(root)
            .map_err(|error| unreadable(format!("sslrootcert cannot be read: {error}")))?;
        let root = Certificate::from_pem(&text)
            .map_err(|error| unreadable(format!("sslrootcert is not a certificate: {error}")))?;
        builder.add_root_certificate(root);
    }
    let built = builder
        .build()
        .map_err(|error| unreadable(format!("TLS cannot be set up: {error}")))?;
    Ok(Some(MakeTlsConnector::new(built)))
}

/// Returns hosts, ports and database name, without user and password.
fn place_of(config: &Config) -> String {
    let port = |at: usize| match config.get_ports() {
        [one] => Some(*one),
        ports => ports.get(at).copied(),
    };
    let named = |(at, host): (usize, &Host)| {
        let host = match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        };
        match port(at) {
            Some(port) => format!("{host}:{port}"),
            None => host,
        }
    };
    let mut hosts: Vec<String> = config.get_hosts().iter().enumerate().map(named).collect();
    if hosts.is_empty() {
        hosts = config
            .get_hostaddrs()
            .iter()
            .map(ToString::to_string)
            .collect();
    }
    let name = config.get_dbname().unwrap_or_default();
    format!("postgres://{}/{name}", hosts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> String {
        Address::parse(text, true).unwrap().place
    }

    #[test]
    fn a_place_shows_hosts_and_name_and_never_who_or_the_password() {
        assert_eq!(
            place("postgres://me:s3cret@one:5433,two:5434/agents?sslmode=disable"),
            "postgres://one:5433,two:5434/agents"
        );
        assert_eq!(
            place("postgresql://%2Ftmp%2Fsocket:99/agents?user=me&password=s3cret"),
            "postgres:///tmp/socket:99/agents"
        );
    }

    #[test]
    fn what_is_wrong_with_an_address_is_told_without_its_values() {
        for text in [
            "postgres://me:s3cret@host:s3cret/agents",
            "postgres://me:s3cret@/agents",
            "postgres://me:s3cret@host/agents?s3cret=s3cret",
            "postgres://me:s3cret@host/agents?sslmode=s3cret",
            "postgres://me:s3cret@host/agents?sslmode=verify-ca&sslrootcert=%2Fno%2Fs3cre",
            "postgres://me:s3cret@host/agents?connect_timeout=s3cret",
            "postgres://me:s3cret%zz@host:1:2/%",
            "postgres://me:pass?s3cret@host/agents",
            "postgres://me:s3cret@host/agents?pooling=s3cret",
        ] {
            let Err(error) = Address::parse(text, true) else {
                continue;
            };
            assert!(matches!(error, OpenError::Address { .. }));
            let text = format!("{error} {error:?}");
            assert!(
                !text.contains("s3cret@") && !text.contains(":s3cret"),
                "{text}"
            );
        }
        assert!(Address::parse("postgres://me:s3cret@host/agents?sslmode=never", true).is_err());
        assert!(Address::parse("postgres://me@host:port/agents", true).is_err());
        assert!(Address::parse("postgres://me@host/agents?pooling=statement", true).is_err());
    }
}
