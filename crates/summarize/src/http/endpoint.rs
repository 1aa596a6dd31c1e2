//! A POST of JSON and its answer, with limits on size and time.

use std::fmt;
use std::io::Read;
use std::time::Instant;

use serde::Deserialize;
use serde_json::Value;

use super::HttpOptions;
use super::retry::{FailedAttempt, retry, retry_after};
use crate::{SummarizerError, SummaryAnswer, SummaryRequest};

/// The most characters of a server's error message that are kept.
const EXPLAINED: usize = 200;

/// The API of a server.
pub(super) trait Dialect {
    /// Returns the path after the base URL.
    fn path(&self) -> &'static str;
    /// Returns the name of the header with the key, and the text before the key.
    fn key_header(&self) -> (&'static str, &'static str);
    /// Returns the other headers.
    fn headers(&self) -> &'static [(&'static str, &'static str)];
    /// Returns the body of a request.
    fn body(&self, request: &SummaryRequest) -> Value;
    /// Reads an answer.
    fn read(&self, body: &str) -> Result<SummaryAnswer, String>;
}

/// A server with its API.
pub(super) struct Endpoint {
    options: HttpOptions,
    agent: Result<ureq::Agent, SummarizerError>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.options, f)
    }
}

impl Endpoint {
    pub(super) fn new(options: HttpOptions) -> Self {
        let agent = agent(&options);
        Self { options, agent }
    }

    pub(super) fn model(&self) -> &str {
        &self.options.model
    }

    /// Sends a request, and repeats it after failures that may be temporary.
    pub(super) fn send(
        &self,
        dialect: &dyn Dialect,
        request: &SummaryRequest,
    ) -> Result<SummaryAnswer, SummarizerError> {
        let begun = Instant::now();
        let body = dialect.body(request).to_string();
        let agent = self.agent.as_ref().map_err(Clone::clone)?;
        let mut answer = retry(&self.options.retry, request, || {
            let text = self.post(agent, dialect, &body, request)?;
            dialect
                .read(&text)
                .map_err(|why| FailedAttempt::last(SummarizerError::Unreadable(self.hide(&why))))
        })?;
        answer.duration = begun.elapsed();
        Ok(answer)
    }

    fn post(
        &self,
        agent: &ureq::Agent,
        dialect: &dyn Dialect,
        body: &str,
        request: &SummaryRequest,
    ) -> Result<String, FailedAttempt> {
        let left = request.time_left().map_err(FailedAttempt::last)?;
        let url = format!(
            "{}{}",
            self.options.base_url.trim_end_matches('/'),
            dialect.path()
        );
        let mut post = agent.post(&url).content_type("application/json");
        for (name, value) in dialect.headers() {
            post = post.header(*name, *value);
        }
        if let Some(key) = &self.options.key {
            let (name, before) = dialect.key_header();
            post = post.header(name, header_value(before, key.reveal())?);
        }
        let timed = post.config().timeout_global(Some(left)).build();
        let mut response = timed.send(body).map_err(failure)?;
        let status = response.status().as_u16();
        let wait = response.headers().get("retry-after");
        let wait = wait
            .and_then(|value| value.to_str().ok())
            .and_then(|value| retry_after(value, loopstore_model::clock::utc_now()));
        let read = self.read(&mut response, request);
        if status == 200 {
            return read;
        }
        Err(FailedAttempt {
            error: SummarizerError::Status {
                status,
                detail: self.explained(status, &read.unwrap_or_default()),
            },
            passing: matches!(status, 408 | 409 | 429 | 500..=599),
            retry_after: wait,
        })
    }

    /// Reads the body in pieces, so that limits on size and time apply.
    fn read(
        &self,
        response: &mut ureq::http::Response<ureq::Body>,
        request: &SummaryRequest,
    ) -> Result<String, FailedAttempt> {
        let most = self.options.max_answer_bytes;
        let limit = most.saturating_add(1);
        let mut reader = response
            .body_mut()
            .with_config()
            .limit(u64::MAX)
            .reader()
            .take(limit);
        let (mut bytes, mut piece) = (Vec::new(), [0u8; 8192]);
        loop {
            request.time_left().map_err(FailedAttempt::last)?;
            match reader.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => bytes.extend_from_slice(&piece[..read]),
                Err(error) => return Err(failure(error.into())),
            }
        }
        if bytes.len() as u64 > most {
            return Err(FailedAttempt::last(SummarizerError::TooLong(most)));
        }
        String::from_utf8(bytes)
            .map_err(|_| FailedAttempt::last(SummarizerError::Unreadable("it is not UTF-8".into())))
    }

    /// Returns the kind and message of a server's error. The message of an authentication error may repeat parts of the
    /// key, so only the kind of such an error is kept.
    fn explained(&self, status: u16, body: &str) -> String {
        #[derive(Deserialize, Default)]
        struct Body {
            #[serde(default)]
            error: Explained,
        }
        #[derive(Deserialize, Default)]
        struct Explained {
            r#type: Option<String>,
            message: Option<String>,
        }
        let stated = serde_json::from_str::<Body>(body).unwrap_or_default().error;
        let message = stated.message.filter(|_| !matches!(status, 401 | 403));
        let words: Vec<String> = [stated.r#type, message].into_iter().flatten().collect();
        self.hide(&words.join(": "))
    }

    /// Returns a server's text, shortened and without the key.
    fn hide(&self, text: &str) -> String {
        let key = self.options.key.as_ref().map(|key| key.reveal());
        let text = match key.filter(|key| !key.is_empty()) {
            Some(key) => text.replace(key, "[key]"),
            None => text.to_owned(),
        };
        let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
        plain.take(EXPLAINED).collect()
    }
}

fn agent(options: &HttpOptions) -> Result<ureq::Agent, SummarizerError> {
    let proxy = match &options.proxy {
        // The cause may contain a password.
        Some(url) => Some(
            ureq::Proxy::new(url)
                .map_err(|_| SummarizerError::Failed("the proxy URL is invalid".into()))?,
        ),
        None => None,
    };
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(proxy)
        .user_agent(concat!("loopstore/", env!("CARGO_PKG_VERSION")));
    Ok(config.build().new_agent())
}

/// Returns the value of the key's header. A key that is no valid header value must not be quoted in an error message.
fn header_value(before: &str, key: &str) -> Result<ureq::http::HeaderValue, FailedAttempt> {
    let value = ureq::http::HeaderValue::from_str(&format!("{before}{key}"));
    let mut value = value.map_err(|_| {
        let why = "the API key has characters that no header can hold";
        FailedAttempt::last(SummarizerError::Failed(why.into()))
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Converts an error of the client. None of the texts quotes a header or the URL.
fn failure(error: ureq::Error) -> FailedAttempt {
    use ureq::Error;
    let unreachable = |why: String| FailedAttempt {
        error: SummarizerError::Unreachable(why),
        passing: true,
        retry_after: None,
    };
    match error {
        Error::Timeout(_) | Error::BodyStalled => FailedAttempt::last(SummarizerError::Timeout),
        Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => {
            FailedAttempt::last(SummarizerError::Timeout)
        }
        Error::Io(error) => unreachable(innermost_cause(&error)),
        Error::HostNotFound => unreachable("its host is not found".into()),
        Error::ConnectionFailed => unreachable("the connection failed".into()),
        Error::Protocol(_) => unreachable("its HTTP is broken".into()),
        Error::Tls(why) => FailedAttempt::last(SummarizerError::Unreachable(why.into())),
        Error::BadUri(_) | Error::Http(_) => {
            FailedAttempt::last(SummarizerError::Failed("the base URL is invalid".into()))
        }
        _ => unreachable("the request failed".into()),
    }
}

fn innermost_cause(error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::ConnectionRefused => "connection refused".into(),
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => "connection reset".into(),
        ErrorKind::UnexpectedEof => "the connection broke off".into(),
        kind => kind.to_string(),
    }
}
