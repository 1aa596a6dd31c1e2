//! Recognises standing instructions: sentences of a person that constrain the work after them.
//!
//! An instruction has a word that constrains, in one of several languages: *never*, *always*, *must*, *do not*.
//! A question is no instruction, nor is a statement about a person (*I never saw it*).

use crate::words::words_of;

/// Words and phrases that constrain, folded as by [`crate::words`], sorted.
const MARKS: [&str; 100] = [
    "a partir de ahora",
    "ab jetzt",
    "alleen",
    "altijd",
    "always",
    "apenas",
    "asegurate",
    "asla",
    "assicurati",
    "assure toi",
    "at all times",
    "auf keinen fall",
    "ausschliesslich",
    "avoid",
    "bevorzuge",
    "bitte nicht",
    "certifique",
    "darf nicht",
    "debe",
    "deben",
    "desormais",
    "deve",
    "devem",
    "devono",
    "do not",
    "doit",
    "doivent",
    "don t",
    "durfen nicht",
    "ensure",
    "evita",
    "evitare",
    "evite",
    "evitez",
    "from now on",
    "garanta",
    "her zaman",
    "immer",
    "instead of",
    "jamais",
    "keinesfalls",
    "mai",
    "make sure",
    "moet",
    "musi",
    "muss",
    "mussen",
    "must",
    "must not",
    "mutlaka",
    "nalezy",
    "nao use",
    "ne pas",
    "never",
    "nie",
    "niemals",
    "nigdy",
    "no hagas",
    "no matter",
    "no uses",
    "nooit",
    "nunca",
    "nur noch",
    "obligatoirement",
    "obligatorio",
    "only the",
    "only use",
    "prefer",
    "prefiere",
    "refrain",
    "sadece",
    "sempre",
    "siempre",
    "solo",
    "somente",
    "stets",
    "stick to",
    "toujours",
    "tylko",
    "unbedingt",
    "under no circumstances",
    "unicamente",
    "uniquement",
    "veille a",
    "vermeide",
    "vermijd",
    "zawsze",
    "zorg ervoor",
    "всегда",
    "должен",
    "должна",
    "должны",
    "избегаи",
    "не делаи",
    "не используи",
    "не надо",
    "нельзя",
    "никогда",
    "обязательно",
    "только",
];

/// Phrases that begin with a mark and do not constrain.
const NO_MARKS: [&str; 5] = [
    "immer noch",
    "muss doch",
    "must have been",
    "toujours pas",
    "toujours plus",
];

/// Marks of scripts without spaces, searched for anywhere in a text.
const MARKS_WITHIN: [&str; 22] = [
    "してはいけない",
    "しないで",
    "のみ",
    "一律",
    "不得",
    "不要",
    "不许",
    "切勿",
    "务必",
    "常に",
    "必ず",
    "必须",
    "总是",
    "永远",
    "禁止",
    "絶対",
    "请勿",
    "반드시",
    "절대",
    "하지 마",
    "하지마",
    "항상",
];

/// Pronouns before a mark in a statement about a person or thing.
const PRONOUNS: [&str; 39] = [
    "el", "ela", "eles", "ella", "elle", "ellos", "er", "es", "eu", "he", "i", "ich", "ik", "il",
    "ils", "io", "it", "je", "man", "noi", "nosotros", "nous", "she", "sie", "that", "there",
    "they", "we", "which", "who", "wij", "wir", "yo", "you", "мы", "он", "она", "они", "я",
];

/// True if a sentence constrains the work after it.
pub(super) fn is_instruction(sentence: &str) -> bool {
    let sentence = sentence.trim();
    if sentence.ends_with(['?', '？', '؟']) {
        return false;
    }
    if MARKS_WITHIN.iter().any(|mark| sentence.contains(mark)) {
        return true;
    }
    let words = words_of(sentence);
    // `I only want` is a statement: the mark follows a pronoun.
    (0..words.len()).any(|at| {
        let is_told_of = at > 0 && PRONOUNS.contains(&&*words[at - 1]);
        let says_else = NO_MARKS.iter().any(|none| begins_with(&words[at..], none));
        !is_told_of && !says_else && begins_with_mark(&words[at..])
    })
}

fn begins_with_mark(words: &[String]) -> bool {
    let first = &*words[0];
    // Marks with the same first word are adjacent.
    let from = MARKS.partition_point(|mark| *mark < first);
    let alike = MARKS[from..]
        .iter()
        .take_while(|mark| mark.starts_with(first));
    alike.into_iter().any(|mark| begins_with(words, mark))
}

fn begins_with(words: &[String], mark: &str) -> bool {
    let mut rest = words.iter();
    mark.split(' ')
        .all(|word| rest.next().is_some_and(|next| next == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_that_constrain_are_found_in_several_languages() {
        for text in [
            "Never push to main.",
            "please don't touch the schema",
            "All dates must be in UTC.",
            "All endpoints must have authentication.",
            "Always have two approvals.",
            "From now on use window seats.",
            "Bitte niemals auf main pushen.",
            "Ne jamais supprimer de fichiers.",
            "Nunca borres la tabla.",
            "Никогда не удаляй файлы.",
            "不要修改数据库。",
            "テストは必ず実行してください。",
        ] {
            assert!(is_instruction(text), "{text}");
        }
    }

    #[test]
    fn what_is_asked_or_told_is_none() {
        for text in [
            "Why must it be so?",
            "I don't know.",
            "I never saw it.",
            "Das verstehe ich immer noch nicht.",
            "The build must have been broken before.",
            "It only fails on Mondays.",
            "Add a test.",
            "",
            "Мы всегда так делали.",
        ] {
            assert!(!is_instruction(text), "{text}");
        }
    }

    #[test]
    fn marks_are_in_order_and_folded() {
        assert!(MARKS.is_sorted(), "for the search");
        for mark in MARKS {
            assert_eq!(words_of(mark).join(" "), mark);
        }
    }
}
