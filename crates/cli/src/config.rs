//! The file of settings and the model for `compact` and `context`.

use std::path::PathBuf;

use loopstore::Settings;
use loopstore_terminal::CliError;

/// The file if no option names one.
const ENV: &str = "LOOPSTORE_CONFIG";

#[derive(clap::Args)]
pub struct ConfigArgs {
    /// A TOML file of settings, named like the options with _ for -. Options override the file [env:
    /// LOOPSTORE_CONFIG].
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// The agent's model, whose context window applies; the model is not called. --max-tokens overrides the window.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
}

impl ConfigArgs {
    /// Returns the settings in the options, with those of the file for the others.
    pub fn settings(&self, given: Settings) -> Result<Settings, CliError> {
        let given = Settings {
            model: self.model.clone(),
            ..given
        };
        let named = || std::env::var_os(ENV).filter(|value| !value.is_empty());
        let path = self.config.clone().or_else(|| named().map(PathBuf::from));
        Ok(match path {
            Some(path) => given.or(Settings::load(path)?),
            None => given,
        })
    }
}
