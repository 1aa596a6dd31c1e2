//! Stop words of questions, in addition to those of every text: words of politeness, and the
//! small words of other languages.
//!
//! A word such as `die` is a stop word in German and not in English, so those of another language count only in a
//! question in that language.

/// The stop words of a language in order, folded as by [`crate::words`].
pub(super) type StopWords = &'static [&'static str];

/// The least number of stop words of a language in a question that is in it, and the least share: one word in so many.
const ENOUGH: usize = 2;
const SHARE: usize = 4;

/// Words of politeness in an English question, and parts of contracted verbs (`isn't`).
const FILLERS: StopWords = &[
    "ain",
    "anybody",
    "anyone",
    "anything",
    "aren",
    "arent",
    "couldn",
    "couldnt",
    "didn",
    "didnt",
    "doesn",
    "doesnt",
    "dont",
    "exactly",
    "hadn",
    "hasn",
    "haven",
    "hello",
    "hey",
    "hi",
    "isn",
    "isnt",
    "kindly",
    "know",
    "let",
    "lets",
    "maybe",
    "mustn",
    "needn",
    "ok",
    "okay",
    "perhaps",
    "please",
    "pls",
    "recall",
    "remember",
    "remind",
    "shan",
    "shouldn",
    "somebody",
    "someone",
    "something",
    "still",
    "tell",
    "thank",
    "thanks",
    "thx",
    "wasn",
    "wasnt",
    "weren",
    "won",
    "wont",
    "wouldn",
    "wouldnt",
];

const GERMAN: StopWords = &[
    "aber", "als", "am", "an", "auch", "auf", "aus", "bei", "bin", "bis", "bist", "bitte", "da",
    "damit", "dann", "das", "dass", "dein", "dem", "den", "denn", "der", "des", "dich", "die",
    "dir", "doch", "du", "durch", "ein", "eine", "einem", "einen", "einer", "eines", "er", "es",
    "fur", "gegen", "habe", "haben", "hast", "hat", "hatte", "hatten", "ich", "ihm", "ihn", "ihr",
    "ihre", "im", "in", "ins", "ist", "ja", "kann", "kein", "keine", "man", "mein", "mich", "mir",
    "mit", "nach", "nicht", "noch", "nun", "nur", "ob", "oder", "ohne", "schon", "sehr", "sein",
    "sich", "sie", "sind", "so", "um", "und", "uns", "unter", "vom", "von", "vor", "wann", "war",
    "warum", "was", "wer", "wie", "wir", "wird", "wo", "zu", "zum",
];

const FRENCH: StopWords = &[
    "ai", "as", "au", "aux", "avait", "avec", "avez", "avons", "c", "ce", "ces", "cet", "cette",
    "comment", "d", "dans", "de", "des", "dont", "du", "elle", "elles", "en", "est", "et", "etait",
    "ete", "il", "ils", "j", "je", "l", "la", "le", "les", "leur", "leurs", "lui", "m", "ma",
    "mais", "me", "merci", "mes", "mon", "n", "ne", "nos", "notre", "nous", "on", "ont", "ou",
    "par", "pas", "plus", "pour", "pourquoi", "qu", "quand", "que", "quel", "quelle", "quelles",
    "quels", "qui", "quoi", "s", "sa", "sans", "se", "ses", "son", "sont", "sous", "sur", "ta",
    "te", "tu", "un", "une", "vos", "vous", "y",
];

const SPANISH: StopWords = &[
    "a", "al", "algo", "como", "con", "cual", "cuando", "de", "del", "desde", "donde", "e", "el",
    "ella", "ellos", "en", "entre", "era", "es", "esa", "ese", "eso", "esta", "estan", "este",
    "esto", "fue", "gracias", "ha", "han", "hasta", "hay", "la", "las", "le", "les", "lo", "los",
    "mas", "me", "mi", "mis", "muy", "no", "nos", "o", "para", "pero", "por", "porque", "pregunta",
    "que", "quien", "se", "ser", "si", "sin", "sobre", "son", "su", "sus", "te", "tiene", "todo",
    "tu", "tus", "un", "una", "unos", "y", "ya", "yo",
];

const ITALIAN: StopWords = &[
    "a", "ai", "al", "alla", "anche", "c", "che", "chi", "ci", "come", "con", "cosa", "d", "da",
    "dal", "dalla", "de", "dei", "del", "della", "delle", "di", "dove", "e", "era", "fra", "gli",
    "grazie", "ha", "hanno", "ho", "i", "il", "in", "io", "l", "la", "le", "lei", "lo", "lui",
    "ma", "mi", "mia", "mio", "ne", "nel", "nella", "noi", "non", "o", "per", "perche", "piu",
    "qual", "quale", "quando", "quanto", "questa", "questo", "se", "si", "sono", "su", "sul",
    "tra", "tu", "un", "una", "voi",
];

const PORTUGUESE: StopWords = &[
    "a", "ao", "aos", "as", "com", "como", "da", "das", "de", "do", "dos", "e", "ela", "ele",
    "eles", "em", "entre", "era", "essa", "esse", "esta", "este", "eu", "foi", "foram", "ha",
    "isso", "isto", "ja", "mais", "mas", "me", "meu", "minha", "muito", "na", "nao", "nas", "no",
    "nos", "o", "obrigado", "onde", "os", "ou", "para", "pela", "pelo", "por", "porque", "qual",
    "quando", "que", "quem", "se", "sem", "ser", "seu", "sua", "suas", "tem", "um", "uma", "umas",
    "uns", "voce",
];

const DUTCH: StopWords = &[
    "aan", "al", "als", "bij", "dan", "dat", "de", "deze", "die", "dit", "doen", "door", "dus",
    "een", "en", "er", "geen", "had", "heb", "hebben", "heeft", "hem", "het", "hier", "hij", "hoe",
    "hun", "ik", "in", "is", "ja", "je", "jij", "kan", "maar", "me", "meer", "men", "met", "mij",
    "mijn", "naar", "niet", "nog", "nu", "of", "om", "ons", "onze", "ook", "op", "over", "te",
    "tot", "uit", "van", "voor", "waarom", "waar", "wat", "we", "wel", "werd", "wie", "wij",
    "zich", "zij", "zijn",
];

/// True if a folded word only makes a question polite.
pub(super) fn is_filler(word: &str) -> bool {
    FILLERS.binary_search(&word).is_ok()
}

/// Returns the small words of the language that a question is in, if that is another than English.
pub(super) fn language<'a>(texts: impl Iterator<Item = &'a str>) -> Option<StopWords> {
    const ALL: [StopWords; 6] = [GERMAN, FRENCH, SPANISH, ITALIAN, PORTUGUESE, DUTCH];
    let mut found = [0_usize; ALL.len()];
    let (mut english, mut words) = (0, 0);
    for text in texts {
        crate::words::each_word(text, &mut |word, _| {
            words += 1;
            english += usize::from(crate::words::stems::is_stop_word(word));
            for (language, found) in ALL.iter().zip(&mut found) {
                *found += usize::from(language.contains(&word));
            }
        });
    }
    let best = found
        .iter()
        .copied()
        .enumerate()
        .max_by_key(|(_, count)| *count);
    let (at, count) = best?;
    (count >= ENOUGH && count > english && count * SHARE >= words).then(|| ALL[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_in_order_and_folded() {
        assert!(FILLERS.is_sorted(), "for the search");
        for all in [FILLERS, GERMAN, FRENCH, SPANISH, ITALIAN, PORTUGUESE, DUTCH] {
            for word in all {
                assert_eq!(crate::words::words_of(word), [*word]);
            }
        }
    }

    #[test]
    fn a_question_is_in_the_language_of_its_small_words() {
        let of = |text: &str| language([text].into_iter());
        assert_eq!(of("wie hoch ist die Anzahlung"), Some(GERMAN));
        assert_eq!(of("quel est le port de la base"), Some(FRENCH));
        assert_eq!(of("how high is the deposit"), None);
        assert_eq!(of("let the process die"), None);
        assert_eq!(of("kubernetes"), None);
    }
}
