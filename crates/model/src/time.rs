//! Times as text.

use chrono::{DateTime, Datelike, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

/// A point in time as ISO 8601 text, kept unchanged.
///
/// A text that is not a valid time is kept too, since some transcripts have such texts; [`Time::parse`] then returns
/// `None`.
///
/// ```
/// use loopstore_model::Time;
///
/// let time = Time::from_text("2026-01-02T03:04:05+01:00");
/// assert_eq!(time.as_str(), "2026-01-02T03:04:05+01:00");
/// assert_eq!(time.millis(), Some(1_767_319_445_000));
/// assert_eq!(Time::from_text("soon").millis(), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(String);

impl Time {
    /// Returns `text` as a time, unchanged.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the current time in UTC, with milliseconds.
    pub fn now() -> Self {
        Self(crate::clock::utc_now().to_rfc3339_opts(SecondsFormat::Millis, true))
    }

    /// Returns the time `ms` milliseconds after 1970; `None` if that is out of range.
    pub fn from_millis(ms: i64) -> Option<Self> {
        DateTime::from_timestamp_millis(ms).map(Self::from)
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the text as an instant; a time without a zone is in UTC.
    pub fn parse(&self) -> Option<DateTime<Utc>> {
        if let Ok(time) = DateTime::parse_from_rfc3339(&self.0) {
            return Some(time.to_utc());
        }
        self.0
            .parse::<chrono::NaiveDateTime>()
            .ok()
            .map(|naive| naive.and_utc())
    }

    /// Returns milliseconds since 1970; `None` if the text is no time.
    pub fn millis(&self) -> Option<i64> {
        self.parse().map(|time| time.timestamp_millis())
    }

    /// Returns the instant as sortable UTC text; `None` if the text is no time or its year in UTC does not have four
    /// digits.
    #[doc(hidden)]
    pub fn sortable(&self) -> Option<String> {
        sortable(self.parse()?)
    }

    /// Returns the instant `ms` milliseconds after 1970 as sortable UTC text.
    #[doc(hidden)]
    pub fn sortable_from_millis(ms: i64) -> Option<String> {
        sortable(DateTime::from_timestamp_millis(ms)?)
    }
}

/// Returns an instant as UTC text of constant length, so that texts sort like instants.
fn sortable(time: DateTime<Utc>) -> Option<String> {
    (0..=9999)
        .contains(&time.year())
        .then(|| time.to_rfc3339_opts(SecondsFormat::Millis, true))
}

impl From<DateTime<Utc>> for Time {
    fn from(time: DateTime<Utc>) -> Self {
        Self(time.to_rfc3339_opts(SecondsFormat::AutoSi, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_kept_to_the_letter() {
        for text in [
            "2026-01-02T03:04:05.123456789Z",
            "2026-01-02T03:04:05+02:00",
            "soon",
        ] {
            assert_eq!(Time::from_text(text).as_str(), text);
        }
    }

    #[test]
    fn a_time_without_zone_is_utc_and_nonsense_is_none() {
        assert_eq!(Time::from_text("1970-01-01T00:00:01").millis(), Some(1000));
        assert_eq!(Time::from_text("yesterday").millis(), None);
        assert_eq!(Time::from_millis(i64::MAX), None);
    }

    #[test]
    fn sortable_texts_are_ordered_as_their_instants() {
        let in_order = [
            "0000-01-01T00:00:00Z",
            "1969-12-31T23:59:59.999Z",
            "2026-03-02T09:00:00+09:00",
            "2026-03-02T00:00:00.001Z",
            "2026-03-01T23:00:00.5-02:00",
            "2026-03-02T02:00:00",
            "9999-12-31T23:59:59Z",
        ];
        let sortable = in_order.map(|text| Time::from_text(text).sortable().unwrap());
        assert!(sortable.is_sorted(), "{sortable:?}");
        assert_eq!(sortable[2], "2026-03-02T00:00:00.000Z");
        let again = sortable
            .clone()
            .map(|text| Time::from_text(text).sortable());
        assert_eq!(again.map(Option::unwrap), sortable);
        assert_eq!(Time::from_text("soon").sortable(), None);
        // In UTC it is a year of five digits.
        let late = Time::from_text("9999-12-31T23:59:59-05:00");
        assert_eq!(late.sortable(), None);
        assert_eq!(Time::sortable_from_millis(i64::MAX / 1000), None);
        let before_the_epoch = Time::sortable_from_millis(-1).unwrap();
        assert_eq!(before_the_epoch, "1969-12-31T23:59:59.999Z");
    }
}
