//! The exceptions of `loopstore._errors` for each error.

pub use loopstore_bindings::CallError;
use loopstore_bindings::errors::ErrorField;
use pyo3::prelude::*;

/// Returns the exception.
pub fn raise(failure: CallError, py: Python<'_>) -> PyErr {
    let failure = match failure {
        CallError::Raised(text, error) => match error.downcast::<PyErr>() {
            Ok(error) => return *error,
            Err(other) => CallError::Raised(text, other),
        },
        failure => failure,
    };
    let (class, text, fields) = failure.describe(build);
    let made = || -> PyResult<PyErr> {
        let class = py.import("loopstore._errors")?.getattr(class)?;
        let error = class.call1((text,))?;
        for (name, field) in fields {
            match field {
                ErrorField::Text(text) => error.setattr(name, text)?,
                ErrorField::Number(number) => error.setattr(name, number)?,
                ErrorField::Nothing => error.setattr(name, py.None())?,
            }
        }
        Ok(PyErr::from_value(error))
    };
    made().unwrap_or_else(|error| error)
}

/// Returns the command that builds the package with a feature.
fn build(feature: &str) -> String {
    format!("MATURIN_PEP517_ARGS='--features {feature}' pip install .")
}
