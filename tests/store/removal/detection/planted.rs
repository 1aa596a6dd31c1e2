//! Random secrets of many kinds, and the texts in which they occur.

use crate::support::histories::Random;

const ALNUM: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const LOWER: &str = "abcdefghijklmnopqrstuvwxyz0123456789";
const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const DIGITS: &str = "0123456789";
const HEX: &str = "0123456789abcdef";
const BASE64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A kind of secrets.
pub struct Kind {
    pub name: &'static str,
    /// The minimum percentage of them that is replaced.
    pub least_percent: u64,
    value: fn(&mut Random) -> String,
    /// The texts around a secret, with `{}` in its place.
    around: &'static [&'static str],
}

/// Contexts in which secrets of any kind occur.
const ANYWHERE: &[&str] = &[
    "{}",
    "the key is {}",
    "use {}.",
    "(see {})",
    "keys: [{}, other]",
    "'{}'",
    "\"{}\"",
    "`{}`",
    "KEY={}",
    "export API_KEY={} && run",
    "https://api.example.com/v1?key={}&alt=sse",
    "| prod | {} | yes |",
    "prod,{},yes",
    "prod;{};yes",
    "headers: {x-api-key: {}}",
    "<key>{}</key>",
    "{\"key\":\"{}\"}",
    "{\\\"key\\\":\\\"{}\\\"}",
    "curl -H \"Authorization: Bearer {}\" https://api.example.com",
    "**{}**",
    "{}: rejected",
    "first line\\n{}\\nlast line",
    "token={}|next",
    "auth {}>log",
    "{}!",
];

const PASSWORD_QUOTED: &[&str] = &[
    "password = \"{}\"",
    "password: '{}'",
    "{\"password\": \"{}\"}",
    "{\"db_password\":\"{}\",\"port\":5432}",
    "db.connect(user='app', password='{}')",
    "passwd := \"{}\"",
    "const dbPassword = \"{}\";",
    "{\\\"password\\\": \\\"{}\\\"}",
    "PASSWORD=\"{}\" ./run",
];

const PASSWORD_ENV: &[&str] = &[
    "DB_PASSWORD={}",
    "export PGPASSWORD={}",
    "POSTGRES_PASSWORD={} docker compose up",
    "docker run -e MYSQL_ROOT_PASSWORD={} mysql",
    "SMTP_PASS={}\nSMTP_HOST=mail",
    "# .env\nREDIS_PASSWORD={}\n",
];

const PASSWORD_OPTION: &[&str] = &[
    "tool --user app --password {} run",
    "tool --password={} run",
    "tool --password '{}'",
    "[\"tool\", \"--password\", \"{}\"]",
    "mysql -u root -p{} app",
    "mysqldump -uroot -p'{}' app",
    "sshpass -p {} ssh host",
    "docker login -u me -p {} registry.example.com",
    "tool -u admin -p {}",
    "tool --db-password {}",
    "curl -u admin:{} https://example.com",
];

const PASSWORD_XML: &[&str] = &[
    "<password>{}</password>",
    "<server><username>app</username><password>{}</password></server>",
    "<db:password type=\"plain\">{}</db:password>",
    "<Password><![CDATA[{}]]></Password>",
];

const PASSWORD_YAML: &[&str] = &[
    "db:\n  user: app\n  password: {}\n  port: 5432",
    "password: {}",
    "- name: app\n  db_password: {} # production",
    "password: |\n  {}\n",
    "spring.datasource.password: {}\n",
    "auth:\n  - passphrase: {}\r\n",
];

const PASSWORD_NETRC: &[&str] = &[
    "machine api.example.com login app password {}",
    "machine api.example.com\n  login app\n  password {}\n",
    "default login app password {}",
];

const URL_PASSWORD: &[&str] = &[
    "postgres://app:{}@db.example.com:5432/app",
    "DATABASE_URL=mysql://root:{}@localhost/app",
    "git clone https://me:{}@example.com/x.git",
    "redis://:{}@cache:6379/0",
    "{\"url\":\"amqp:\\/\\/app:{}@queue\\/\"}",
];

const COOKIES: &[&str] = &[
    "Cookie: session={}",
    "Cookie: theme=dark; sid={}; lang=en",
    "Set-Cookie: sessionid={}; Path=/; HttpOnly",
    "curl -b 'session={}' https://example.com",
    "curl --cookie \"auth={}\" https://example.com",
    "-H 'Cookie: connect.sid={}'",
    "{\"cookie\": \"session={}\"}",
    "PHPSESSID={}; path=/",
];

const GENERIC: &[&str] = &[
    "api_key = \"{}\"",
    "client_secret: {}",
    "SECRET_KEY={}",
    "{\"accessToken\":\"{}\"}",
    "auth_token={}&user=1",
    "X-Api-Key: {}",
    "apiKey: '{}',",
];

const fn form(name: &'static str, value: fn(&mut Random) -> String) -> Kind {
    Kind {
        name,
        least_percent: 100,
        value,
        around: ANYWHERE,
    }
}

const fn named(
    name: &'static str,
    least_percent: u64,
    value: fn(&mut Random) -> String,
    around: &'static [&'static str],
) -> Kind {
    Kind {
        name,
        least_percent,
        value,
        around,
    }
}

/// All kinds.
pub const KINDS: &[Kind] = &[
    form("Anthropic `sk-ant-…`", |r| {
        format!("sk-ant-api03-{}AA", some(r, URL, 93))
    }),
    form("OpenAI `sk-proj-…`", |r| {
        format!("sk-proj-{}T3BlbkFJ{}", some(r, URL, 74), some(r, URL, 74))
    }),
    form("OpenAI and others, bare `sk-…`", |r| {
        let length = 32 + r.below(17) as usize;
        format!("sk-{}", some(r, ALNUM, length))
    }),
    form("OpenRouter `sk-or-v1-…`", |r| {
        format!("sk-or-v1-{}", some(r, HEX, 64))
    }),
    form("Hugging Face `hf_…`", |r| {
        format!("hf_{}", some(r, ALNUM, 34))
    }),
    form("Groq `gsk_…`", |r| format!("gsk_{}", some(r, ALNUM, 52))),
    form("LlamaCloud `llx-…`", |r| {
        format!("llx-{}", some(r, ALNUM, 48))
    }),
    form("xAI `xai-…`", |r| format!("xai-{}", some(r, ALNUM, 80))),
    form("Replicate `r8_…`", |r| {
        format!("r8_{}", some(r, ALNUM, 37))
    }),
    form("Google API `AIza…`", |r| {
        format!("AIza{}", some(r, URL, 35))
    }),
    form("Google OAuth `GOCSPX-…`", |r| {
        format!("GOCSPX-{}", some(r, URL, 28))
    }),
    form("AWS access key `AKIA…`", |r| {
        format!("AKIA{}", some(r, UPPER, 16))
    }),
    form("GitHub `ghp_…`", |r| {
        format!("ghp_{}", some(r, ALNUM, 36))
    }),
    form("GitHub `github_pat_…`", |r| {
        format!("github_pat_{}_{}", some(r, ALNUM, 22), some(r, ALNUM, 59))
    }),
    form("GitLab `glpat-…`", |r| {
        format!("glpat-{}", some(r, ALNUM, 20))
    }),
    form("npm `npm_…`", |r| format!("npm_{}", some(r, ALNUM, 36))),
    form("PyPI `pypi-…`", |r| {
        format!("pypi-AgEIcHlwaS5vcmc{}", some(r, URL, 80))
    }),
    form("Stripe `sk_live_…`", |r| {
        format!("sk_live_{}", some(r, ALNUM, 24))
    }),
    form("SendGrid `SG.…`", |r| {
        format!("SG.{}.{}", some(r, URL, 22), some(r, URL, 43))
    }),
    form("DigitalOcean `dop_v1_…`", |r| {
        format!("dop_v1_{}", some(r, HEX, 64))
    }),
    form("Twilio `SK…`", |r| format!("SK{}", some(r, HEX, 32))),
    form("Slack `xoxb-…`", |r| {
        let (team, bot) = (some(r, DIGITS, 12), some(r, DIGITS, 12));
        format!("xoxb-{team}-{bot}-{}", some(r, ALNUM, 24))
    }),
    form("Slack webhook", |r| {
        let (team, bot) = (some(r, UPPER, 9), some(r, UPPER, 9));
        format!("T{team}/B{bot}/{}", some(r, ALNUM, 24))
    })
    .within(&[
        "https://hooks.slack.com/services/{}",
        "curl -d @x https://hooks.slack.com/services/{}",
        "url: https://hooks.slack.com/services/{}, channel: ops",
    ]),
    form("Telegram bot", |r| {
        let number = 1_000_000_000 + r.below(8_000_000_000);
        format!("{number}:AA{}", some(r, URL, 33))
    }),
    form("Telegram bot in a URL", |r| {
        let number = 1_000_000_000 + r.below(8_000_000_000);
        format!("{number}:AA{}", some(r, URL, 33))
    })
    .within(&["https://api.telegram.org/bot{}/getMe"]),
    form("Discord bot", |r| {
        let (a, b) = (some(r, ALNUM, 25), some(r, URL, 6));
        format!("M{a}.{b}.{}", some(r, URL, 38))
    })
    .within(&[
        "DISCORD_TOKEN={}",
        "client.login('{}') // bot",
        "Authorization: Bot {}",
        "bot.run(\"{}\")",
        "{\"discord\":{\"token\":\"{}\"}}",
    ]),
    form("JSON web token", |r| {
        let (a, b) = (some(r, URL, 33), some(r, URL, 60));
        format!("eyJ{a}.eyJ{b}.{}", some(r, URL, 43))
    }),
    form("private key", |r| {
        let lines: Vec<String> = (0..6).map(|_| some(r, BASE64, 64)).collect();
        let body = lines.join("\n");
        format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----")
    }),
    form("Azure storage key", |r| {
        format!("{}==", some(r, BASE64, 86))
    })
    .within(&[
        "AccountName=x;AccountKey={};EndpointSuffix=core",
        "accountKey: \"{}\"",
        "SharedAccessKey={}",
    ]),
    named(
        "AWS secret key after its name",
        95,
        |r| some(r, BASE64, 40),
        &[
            "aws_secret_access_key = {}",
            "AWS_SECRET_ACCESS_KEY={}",
            "{\"awsSecretKey\":\"{}\"}",
        ],
    ),
    named(
        "key after its name, random",
        90,
        |r| some(r, ALNUM, 32),
        GENERIC,
    ),
    named(
        "bearer and basic headers",
        98,
        |r| some(r, URL, 40),
        &[
            "Authorization: Bearer {}",
            "-H 'authorization: Basic {}'",
            "{\"Authorization\":\"Bearer {}\"}",
        ],
    ),
    named("password in an address", 98, mixed, URL_PASSWORD),
    named(
        "password of letters in quotes",
        98,
        letters,
        PASSWORD_QUOTED,
    ),
    named(
        "password of letters in a variable",
        98,
        letters,
        PASSWORD_ENV,
    ),
    named(
        "password of letters in an option",
        98,
        letters,
        PASSWORD_OPTION,
    ),
    named("password of letters in XML", 98, letters, PASSWORD_XML),
    named("password of letters in YAML", 95, letters, PASSWORD_YAML),
    named("password of letters in netrc", 98, letters, PASSWORD_NETRC),
    named(
        "password with digits or signs, in all of these",
        98,
        mixed,
        &[
            "password = \"{}\"",
            "{\"password\": \"{}\"}",
            "password: {}",
            "DB_PASSWORD={}",
            "tool --password {} run",
            "mysql -u root -p{} app",
            "<password>{}</password>",
            "machine x login y password {}",
            "password={}&user=app",
        ],
    ),
    named(
        "passphrase of four words in quotes",
        90,
        phrase,
        &[
            "password = \"{}\"",
            "passphrase: '{}'",
            "{\"password\": \"{}\"}",
            "DB_PASSWORD=\"{}\"",
        ],
    ),
    named("session cookies", 95, |r| some(r, ALNUM, 32), COOKIES),
];

impl Kind {
    const fn within(mut self, around: &'static [&'static str]) -> Self {
        self.around = around;
        self
    }
}

fn some(random: &mut Random, letters: &str, length: usize) -> String {
    let letters = letters.as_bytes();
    let one = |_| char::from(letters[random.below(letters.len() as u64) as usize]);
    (0..length).map(one).collect()
}

const WORDS: [&str; 48] = [
    "quiet", "river", "stone", "winter", "orange", "silver", "bridge", "marble", "thunder",
    "velvet", "garden", "copper", "falcon", "meadow", "ginger", "harbor", "island", "jungle",
    "kitten", "ladder", "mango", "needle", "ocean", "pepper", "rabbit", "saddle", "tiger",
    "umbrella", "violin", "walnut", "yellow", "zebra", "anchor", "basket", "candle", "dragon",
    "engine", "forest", "guitar", "hammer", "igloo", "jacket", "kernel", "lemon", "mirror",
    "nickel", "otter", "planet",
];

fn word(random: &mut Random) -> &'static str {
    WORDS[random.below(WORDS.len() as u64) as usize]
}

/// Returns a password of letters only, as people choose them.
fn letters(random: &mut Random) -> String {
    let words = [word(random), word(random), word(random)];
    match random.below(4) {
        0 => words.map(capital).concat(),
        1 => words[..2].concat(),
        2 => words[..2].iter().copied().map(capital).collect(),
        _ => {
            let length = 10 + random.below(8) as usize;
            some(random, LETTERS, length)
        }
    }
}

fn capital(word: &str) -> String {
    word[..1].to_uppercase() + &word[1..]
}

/// Returns a password of letters, digits and perhaps a special character.
fn mixed(random: &mut Random) -> String {
    let number = random.below(10_000);
    match random.below(3) {
        0 => format!("{}{number}!", capital(word(random))),
        1 => format!("{}-{}-{number}", word(random), word(random)),
        _ => format!("{}7", some(random, LOWER, 15)),
    }
}

fn phrase(random: &mut Random) -> String {
    let words: Vec<&str> = (0..4).map(|_| word(random)).collect();
    words.join(" ")
}

/// Returns a secret of a kind, and a text that contains it.
pub fn plant(kind: &Kind, random: &mut Random) -> (String, String) {
    let value = (kind.value)(random);
    let around = kind.around[random.below(kind.around.len() as u64) as usize];
    let written = match around.contains("\\\"") || around.contains("\\n") {
        true => value.replace('\n', "\\n"),
        false => value.clone(),
    };
    let text = around.replace("{}", &written);
    // A key of several lines in one text is searched for by its last line.
    let shown = value.lines().rev().nth(1).map(str::to_owned);
    (text, shown.unwrap_or(value))
}

const SENTENCES: [&str; 27] = [
    "--- PASS: TestParse{}Level_{} (0.00s)",
    "PASS: tests/{}/{}_test.go::Test{}",
    "{\"apiCallId\":\"resp_0a1b2c3d4e5f60718293a4b5c6d7e8f9\",\"tool\":\"{}\"}",
    "The {} of the {} is read before the {} is written.",
    "Enter the password of the {} and the {} again.",
    "We changed the token of the {}: it ends after ten {}s.",
    "The key of the {} map is the path of its {}, e.g. src/{}/{}.rs.",
    "See docs/{}/{}.md, section \"{} and {}\".",
    "let {} = {}::new({}); // the {} of the {}",
    "if ({}.password == null) { throw new Error(\"no password for {}\"); }",
    "password: {} is required, {} is optional.",
    "key: {}_{}_{}",
    "cache_key = f\"{}/{}/{{}}\"",
    "The secret of a good {} is a good {}.",
    "git checkout -b {}-{}-{} && cargo test -p {}",
    "commit 3f786850e387550fdab836ed7e6dc881de23001b by {}",
    "2026-11-27T10:32:14Z INFO {}.{}: {} done in 12 ms",
    "{{\"id\":\"0192a0b4-3c1d-7e22-9a55-c0ffee123456\",\"name\":\"{}\"}}",
    "The access of {} to {} was refused: 403.",
    "auth: {}, credentials: {}, api: {}",
    "mkdir -p {}/{} && cp {} {}",
    "public static final String TOKEN_NAME = \"{}_{}\";",
    "const {{ {}, {} }} = require('./{}/{}');",
    "The author of the {} keyed the {} by {}.",
    "| {} | {} | {} |",
    "password=$DB_PASSWORD {} --{} {}",
    "monkey = '{}'; turkey = '{}'",
];

/// A line without secrets.
pub fn prose(random: &mut Random) -> String {
    let sentence = SENTENCES[random.below(SENTENCES.len() as u64) as usize];
    let sentence = sentence.replace("{{", "\u{1}").replace("}}", "\u{2}");
    let mut parts = sentence.split("{}");
    let mut line = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        line.push_str(word(random));
        line.push_str(part);
    }
    line.replace('\u{1}', "{").replace('\u{2}', "}")
}
