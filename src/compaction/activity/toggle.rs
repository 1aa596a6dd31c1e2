pub(crate) fn on(c: char) -> bool { std::env::var("TOG").is_ok_and(|v| v.contains(c)) }
