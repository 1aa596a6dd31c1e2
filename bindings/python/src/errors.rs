//! From what can go wrong to the exceptions of `loopstore._errors`.

pub use loopstore_bindings::Failure;
use loopstore_bindings::errors::Field;
use pyo3::prelude::*;

/// Makes the exception.
pub fn raise(failure: Failure, py: Python<'_>) -> PyErr {
    let (class, text, fields) = failure.describe(build);
    let made = || -> PyResult<PyErr> {
        let class = py.import("loopstore._errors")?.getattr(class)?;
        let error = class.call1((text,))?;
        for (name, field) in fields {
            match field {
                Field::Text(text) => error.setattr(name, text)?,
                Field::Number(number) => error.setattr(name, number)?,
                Field::Nothing => error.setattr(name, py.None())?,
            }
        }
        Ok(PyErr::from_value(error))
    };
    made().unwrap_or_else(|error| error)
}

/// Says how the package is built with a feature.
fn build(feature: &str) -> String {
    format!("MATURIN_PEP517_ARGS='--features {feature}' pip install .")
}
