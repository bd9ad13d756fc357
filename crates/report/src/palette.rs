//! The colours of page and drawings, each stated once.

/// (name, light, dark). Texts have a contrast of at least 4.5 on `paper` and `card`.
const COLOURS: [(&str, &str, &str); 17] = [
    ("paper", "#fbfaf8", "#15181b"),
    ("card", "#ffffff", "#1c2024"),
    ("ink", "#1e2328", "#e4e6e8"),
    ("muted", "#5b646e", "#a0a9b2"),
    ("rule", "#e3e1dc", "#30363c"),
    ("accent", "#0a6b5c", "#55c7b0"),
    ("wash", "#e3f1ee", "#173a35"),
    ("faint", "#9aa2aa", "#6d7781"),
    ("bad", "#ab3524", "#f28b78"),
    ("badwash", "#fbe9e5", "#42231e"),
    ("warn", "#805300", "#e5b454"),
    ("warnwash", "#fdf2da", "#3c2f14"),
    ("code1", "#7a3e9d", "#cf9ff0"),
    ("code2", "#8a4b08", "#e6b07a"),
    ("code3", "#1f5fa8", "#86b8f5"),
    ("added", "#e2f4ea", "#16362a"),
    ("removed", "#fbe7e4", "#40231f"),
];

/// Style rules of the drawings; `{name}` stands for a colour.
const DRAWING: &str = include_str!("drawing.css");

/// `--name:colour` for both themes.
pub(crate) fn variables() -> String {
    let list = |pick: fn(&(&'static str, &'static str, &'static str)) -> &'static str| {
        COLOURS.iter().map(|c| format!("--{}:{};", c.0, pick(c))).collect::<String>()
    };
    let (light, dark) = (list(|c| c.1), list(|c| c.2));
    format!(":root{{color-scheme:light dark;{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}")
}

/// The drawings' rules for a page that has [`variables`].
pub(crate) fn drawing_in_page() -> String {
    COLOURS
        .iter()
        .fold(DRAWING.to_owned(), |css, c| css.replace(&format!("{{{}}}", c.0), &format!("var(--{})", c.0)))
}

/// The drawings' rules for a file of its own, first the light ones: not every renderer knows variables or media.
pub(crate) fn drawing_alone() -> String {
    let with = |pick: fn(&(&'static str, &'static str, &'static str)) -> &'static str| {
        COLOURS.iter().fold(DRAWING.to_owned(), |css, c| css.replace(&format!("{{{}}}", c.0), pick(c)))
    };
    format!("{}@media(prefers-color-scheme:dark){{{}}}", with(|c| c.1), with(|c| c.2))
}
