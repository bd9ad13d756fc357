//! `docs/reference/journal.md`, from the doc comments of `journal.rs` and of what its events hold.

use std::{collections::BTreeSet, fmt::Write};

use syn::{Fields, FieldsNamed, Item, ItemEnum};

use super::{
    MADE, page,
    types::{Types, cased, serde},
};
use crate::source::{doc, first};

const MODULE: &str = "ratchet::journal";

#[test]
fn the_journal_page_is_what_the_doc_comments_say() {
    page("journal", &text().replace("`None`", "null"));
}

/// The oracle is what a run writes.
#[test]
fn each_event_and_field_of_a_real_journal_is_on_the_page() {
    let text = text();
    let toy = crate::toy::Toy::new();
    toy.exits(0, &["run", "--trials", "4", "--tag", "bar"]);
    toy.exits(0, &["noise", "--runs", "1"]);
    toy.exits(0, &["rerun", "1"]);
    let mut seen = BTreeSet::new();
    for line in toy.read(".ratchet/tags/bar/journal.jsonl").lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let event = event.as_object().unwrap();
        let name = event["event"].as_str().unwrap();
        assert!(text.contains(&format!("\n### Event `{name}`\n")), "{name}");
        for key in event.keys().filter(|key| !["v", "event"].contains(&key.as_str())) {
            assert!(text.contains(&format!("\n- `{key}` (")), "{name}: {key}");
        }
        seen.insert(name.to_owned());
    }
    for event in ["init", "run_started", "opened", "closed", "run_ended", "replicated"] {
        assert!(seen.contains(event), "the night has no {event}");
    }
}

fn text() -> String {
    let types = Types::read();
    let source = &types.sources[MODULE];
    let Some(Item::Enum(events)) = types.find("Event", MODULE).map(|found| found.item) else {
        panic!("no Event")
    };
    let about: Vec<String> = doc(&source.parsed.attrs)
        .split("\n\n")
        .map(|paragraph| paragraph.split('\n').map(str::trim).collect::<Vec<_>>().join(" "))
        .collect();
    let mut text = format!(
        "# The journal\n\n{MADE}\n\n`.ratchet/tags/TAG/journal.jsonl`. {}\n\nEvery line holds `v`, the version of its \
         form (1), `event`, and the fields of that event. Times are RFC 3339 in UTC, values are in the metric's unit. \
         Fields that an older driver did not write are missing in its lines.\n\n## Events\n",
        about.join("\n\n").trim()
    );
    let mut queue: Vec<(String, String)> = Vec::new();
    let mut meet = |name: &str, module: &str| {
        let entry = (name.to_owned(), module.to_owned());
        if !queue.contains(&entry) {
            queue.push(entry);
        }
        link(name)
    };
    let rule = serde(&events.attrs).rename_all;
    for variant in &events.variants {
        let name = cased(&variant.ident.to_string(), rule.as_deref());
        let _ = write!(text, "\n### Event `{name}`\n\n{}\n", paragraphs(&variant.attrs));
        match &variant.fields {
            Fields::Unit => {}
            Fields::Named(named) => fields(&mut text, &types, named, MODULE, &mut meet),
            Fields::Unnamed(inner) => {
                let of = types.shape(&inner.unnamed[0].ty, MODULE, &mut meet);
                let _ = write!(text, "\nIts fields are those of {of}.\n");
            }
        }
    }
    text += "\n## What events hold\n";
    let mut done = 0;
    loop {
        let mut met = Vec::new();
        for (name, module) in &queue[done..] {
            let mut meet = |name: &str, module: &str| {
                met.push((name.to_owned(), module.to_owned()));
                link(name)
            };
            let found = types.find(name, module).unwrap();
            let (attrs, body) = match found.item {
                Item::Struct(item) => (&item.attrs, members(&types, &item.fields, found.module, &mut meet)),
                Item::Enum(item) => (&item.attrs, choices(&types, item, found.module, &mut meet)),
                _ => unreachable!("only types are found"),
            };
            let _ = write!(text, "\n### {name}\n\n{}\n{body}", paragraphs(attrs));
        }
        done = queue.len();
        for entry in met {
            if !queue.contains(&entry) {
                queue.push(entry);
            }
        }
        if queue.len() == done {
            return text;
        }
    }
}

fn link(name: &str) -> String {
    format!("[{name}](#{})", name.to_lowercase())
}

fn paragraphs(attrs: &[syn::Attribute]) -> String {
    let text = doc(attrs);
    text.split("\n\n")
        .map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join("\n\n")
}

fn members(types: &Types, all: &Fields, module: &str, meet: &mut dyn FnMut(&str, &str) -> String) -> String {
    let mut text = String::new();
    if let Fields::Named(named) = all {
        fields(&mut text, types, named, module, meet);
    }
    text
}

fn fields(
    text: &mut String,
    types: &Types,
    named: &FieldsNamed,
    module: &str,
    meet: &mut dyn FnMut(&str, &str) -> String,
) {
    text.push('\n');
    for field in &named.named {
        let said = serde(&field.attrs);
        if said.skip {
            continue;
        }
        let name = said.rename.unwrap_or_else(|| field.ident.as_ref().unwrap().to_string());
        let shape = types.shape(&field.ty, module, meet);
        let about = first(&doc(&field.attrs));
        let name = if said.flatten { format!("the fields of `{name}`") } else { format!("`{name}`") };
        let _ = writeln!(text, "- {name} ({shape}): {about}");
    }
}

fn choices(
    types: &Types,
    item: &ItemEnum,
    module: &str,
    meet: &mut dyn FnMut(&str, &str) -> String,
) -> String {
    let rule = serde(&item.attrs).rename_all;
    let mut text = "\n".to_owned();
    for variant in &item.variants {
        let own = serde(&variant.attrs);
        let name = own.rename.unwrap_or_else(|| cased(&variant.ident.to_string(), rule.as_deref()));
        let _ = writeln!(text, "- `\"{name}\"`: {}", first(&doc(&variant.attrs)));
        match &variant.fields {
            Fields::Unit => {}
            Fields::Unnamed(inner) => {
                let shapes: Vec<String> =
                    inner.unnamed.iter().map(|field| types.shape(&field.ty, module, meet)).collect();
                let _ = writeln!(text, "  - holds {}", shapes.join(", "));
            }
            Fields::Named(named) => {
                let mut own = String::new();
                fields(&mut own, types, named, module, meet);
                for line in own.lines().filter(|line| !line.is_empty()) {
                    let _ = writeln!(text, "  {line}");
                }
            }
        }
    }
    text
}
