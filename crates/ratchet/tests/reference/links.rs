//! Links between pages lead somewhere.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::source::root;

/// All pages for people.
pub(crate) fn pages() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from("docs"), PathBuf::from("examples")];
    for page in ["README.md", "CONTRIBUTING.md", "program.md"] {
        found.push(PathBuf::from(page));
    }
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            if root().join(&path).is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn every_link_between_pages_leads_to_a_file_and_a_heading() {
    let mut count = 0;
    for page in pages() {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        for link in links(&text) {
            // addresses of the web, and doc comments' links to items
            if link.contains("://") || link.contains("::") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match path {
                "" => page.clone(),
                path => page.parent().unwrap_or(Path::new("")).join(path),
            };
            assert!(root().join(&target).exists(), "{}: {link} leads nowhere", page.display());
            if !anchor.is_empty() {
                let text = fs::read_to_string(root().join(&target)).unwrap();
                let there = anchors(&text);
                assert!(
                    there.contains(anchor),
                    "{}: {link}: no such heading among {there:?}",
                    page.display()
                );
            }
            count += 1;
        }
    }
    assert!(count > 20, "{count} links");
}

/// Targets of `[…](…)` outside code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut code = false;
    for line in text.lines() {
        code ^= line.trim_start().starts_with("```");
        if code || line.starts_with("    ") {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("x");
        for part in prose.split("](").skip(1) {
            found.extend(part.split_once(')').map(|(target, _)| target.to_owned()));
        }
    }
    found
}

/// The anchors of a page's headings, as code hosts make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut code = false;
    for line in text.lines() {
        code ^= line.trim_start().starts_with("```");
        if !code && line.starts_with('#') {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            found.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
        }
    }
    found
}

#[test]
fn a_heading_and_a_link_are_found_as_a_reader_would() {
    let text = "# A `b`, c!\n```\n[x](y)\n# no\n```\nsee [d](e.md#f) and `[g](h)`\n";
    assert_eq!(links(text), ["e.md#f"]);
    assert_eq!(anchors(text), BTreeSet::from(["a-b-c".to_owned()]));
}
