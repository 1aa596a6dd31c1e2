//! Prices of tokens.

use std::collections::BTreeMap;

use serde::Deserialize;

use loopstore::UsageCost;

/// Prices by model, per million tokens, with the currency and the date of the table if it names them.
///
/// ```
/// use loopstore_report::Prices;
///
/// let prices = Prices::from_json(r#"{"sonnet": {"input": 3, "output": 15, "cache_read": 0.3}}"#)?;
/// # Ok::<(), loopstore_report::PriceError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prices {
    currency: Option<String>,
    date: Option<String>,
    models: BTreeMap<String, ModelPrice>,
}

/// A table of prices with its currency and date.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceTable {
    currency: Option<String>,
    date: Option<String>,
    models: BTreeMap<String, ModelPrice>,
}

/// An error in prices.
#[derive(Debug, thiserror::Error)]
pub enum PriceError {
    /// The text is not valid JSON of prices.
    #[error("expected {{\"MODEL\": {{\"input\": 3, \"output\": 15, …}}}}: {0}")]
    Json(#[from] serde_json::Error),
    /// A price is negative, or not a number.
    #[error("a price of `{0}` is negative or not a number")]
    Negative(String),
}

/// The prices of a million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelPrice {
    input: f64,
    output: f64,
    /// As `input` if it is not given.
    cache_read: Option<f64>,
    /// As `input` if it is not given.
    cache_write: Option<f64>,
}

impl Prices {
    /// Reads `{"MODEL": {"input", "output", "cache_read"?, "cache_write"?}}`, or
    /// `{"currency"?, "date"?, "models": {…}}` with these as `models`.
    ///
    /// # Errors
    /// If the text does not have this form, or a price is negative.
    pub fn from_json(text: &str) -> Result<Self, PriceError> {
        let is_table = |fields: &BTreeMap<String, serde_json::Value>| {
            // The prices of a model named `models` are numbers.
            let models = fields.get("models").and_then(serde_json::Value::as_object);
            models.is_some_and(|models| models.values().all(serde_json::Value::is_object))
        };
        let prices = match serde_json::from_str(text).is_ok_and(|fields| is_table(&fields)) {
            true => {
                let table: PriceTable = serde_json::from_str(text)?;
                Self {
                    currency: table.currency,
                    date: table.date,
                    models: table.models,
                }
            }
            false => Self {
                models: serde_json::from_str(text)?,
                ..Self::default()
            },
        };
        for (model, price) in &prices.models {
            let given = [Some(price.input), Some(price.output)];
            let caches = [price.cache_read, price.cache_write];
            let is_price = |price: f64| price.is_finite() && price >= 0.0;
            if !given.into_iter().chain(caches).flatten().all(is_price) {
                return Err(PriceError::Negative(model.clone()));
            }
        }
        Ok(prices)
    }

    /// Returns the currency that the table names.
    pub fn currency(&self) -> Option<&str> {
        self.currency.as_deref()
    }

    /// Returns the date that the table names, as its text.
    pub fn date(&self) -> Option<&str> {
        self.date.as_deref()
    }

    /// Returns the cost of tokens of a model, by the price of its name or of the longest prefix of its name; `None`
    /// if there is no price.
    pub fn cost(&self, model: Option<&str>, spent: &UsageCost) -> Option<f64> {
        let price = self.of(model?)?;
        let cached =
            |price: Option<f64>, tokens: u64, base: f64| price.unwrap_or(base) * tokens as f64;
        let sum = price.input * spent.input as f64
            + price.output * spent.output as f64
            + cached(price.cache_read, spent.cache_read, price.input)
            + cached(price.cache_write, spent.cache_write, price.input);
        Some(sum / 1e6)
    }

    fn of(&self, model: &str) -> Option<&ModelPrice> {
        self.models.get(model).or_else(|| {
            let fits = self
                .models
                .iter()
                .filter(|(name, _)| model.starts_with(&***name));
            fits.max_by_key(|(name, _)| name.len())
                .map(|(_, price)| price)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_without_a_price_costs_as_input_and_the_longest_name_wins() {
        let text = r#"{"m": {"input": 1, "output": 1},
            "m-4": {"input": 2, "output": 10, "cache_read": 0.5}}"#;
        let prices = Prices::from_json(text).unwrap();
        let spent = UsageCost {
            input: 1_000_000,
            output: 100_000,
            cache_read: 2_000_000,
            cache_write: 500_000,
            ..UsageCost::default()
        };
        assert_eq!(
            prices.cost(Some("m-4-2026"), &spent),
            Some(2.0 + 1.0 + 1.0 + 1.0)
        );
        assert_eq!(
            prices.cost(Some("m-3"), &spent),
            Some(1.0 + 0.1 + 2.0 + 0.5)
        );
        assert_eq!(prices.cost(Some("other"), &spent), None);
        assert_eq!(prices.cost(None, &spent), None);
    }

    #[test]
    fn a_table_names_its_currency_and_date() {
        let text = r#"{"currency": "USD", "date": "2026-11-01", "models": {"m": {"input": 1, "output": 2}}}"#;
        let prices = Prices::from_json(text).unwrap();
        assert_eq!(
            (prices.currency(), prices.date()),
            (Some("USD"), Some("2026-11-01"))
        );
        let spent = UsageCost {
            input: 1_000_000,
            ..UsageCost::default()
        };
        assert_eq!(prices.cost(Some("m"), &spent), Some(1.0));
        let plain = Prices::from_json(r#"{"models": {"input": 1, "output": 2}}"#).unwrap();
        assert_eq!(plain.cost(Some("models"), &spent), Some(1.0));
        assert!(
            Prices::from_json(r#"{"currency": "USD", "m": {"input": 1, "output": 2}}"#).is_err()
        );
    }

    #[test]
    fn what_is_no_price_is_refused() {
        for bad in [
            "[]",
            "{\"m\": 3}",
            r#"{"m": {"input": 3}}"#,
            r#"{"m": {"input": 3, "output": 4, "cached": 1}}"#,
            r#"{"m": {"input": -3, "output": 4}}"#,
            r#"{"m": {"input": 1e999, "output": 4}}"#,
        ] {
            assert!(Prices::from_json(bad).is_err(), "{bad}");
        }
    }
}
