//! The page in a real browser. These tests need Debian's `chromium`, so a plain `cargo test` leaves them out; CI runs
//! them: `cargo test --release -p report -- --ignored`.

use std::env;
use std::fs;
use std::path::PathBuf;

use report::Night;
use report::night::Status;
use serde_json::{Value, json};

use crate::chromium::Browser;
use crate::nights;

const DESKTOP: (u32, u32, u32, &str) = (1280, 900, 1, "light");

fn open(night: &Night, (width, height, density, theme): (u32, u32, u32, &str), part: &str) -> Browser {
    let mut browser = Browser::start();
    browser.view(width, height, density, theme);
    browser.open(&report::html(night), part);
    browser
}

/// Numbers in the first column of the rows that are shown.
fn shown(browser: &mut Browser) -> Vec<u64> {
    let rows = browser.run("[...document.querySelectorAll('#all tbody tr')].filter(r => r.checkVisibility()).map(r => +r.cells[0].textContent)");
    rows.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
}

#[test]
#[ignore = "needs chromium"]
fn nothing_complains_and_no_hostile_text_runs() {
    let mut browser = open(&nights::hostile(40, true), DESKTOP, "t3");
    browser.run("document.querySelectorAll('details').forEach(d => d.open = true)");
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let title = browser.run("document.title");
    assert!(title.as_str().unwrap().starts_with("</script>"), "{title}");
    // that silence means something: were a script to get in, it would not run, and would be heard of
    browser.run(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'document.title = 1'}))",
    );
    assert_eq!(browser.run("document.title"), title);
    let complaints = browser.complaints();
    assert!(complaints.iter().any(|c| c.contains("Content Security Policy")), "{complaints:?}");
}

#[test]
#[ignore = "needs chromium"]
fn a_click_sorts_by_number_and_crashes_stay_last_either_way() {
    let night = nights::night();
    let mut browser = open(&night, DESKTOP, "");
    let mut scored: Vec<_> = night.trials.iter().filter(|t| t.status != Status::Crash).collect();
    let crashed: Vec<u64> =
        night.trials.iter().filter(|t| t.status == Status::Crash).map(|t| t.trial).collect();
    let expected = |scored: &[&report::night::Trial]| {
        scored.iter().map(|t| t.trial).chain(crashed.clone()).collect::<Vec<u64>>()
    };
    // as it is shown: four decimals, then oldest first
    let key = |t: &report::night::Trial| (t.value.unwrap() * 1e4).round() as i64;
    browser.click("#all th:nth-child(4) button");
    scored.sort_by_key(|t| key(t));
    assert_eq!(shown(&mut browser), expected(&scored));
    assert_eq!(browser.run("document.querySelector('#all th:nth-child(4)').ariaSort"), "ascending");
    // the other way, with the keyboard
    browser.press("Enter", 13);
    scored.sort_by_key(|t| (-key(t), t.trial));
    assert_eq!(shown(&mut browser), expected(&scored));
    browser.click("#all th:nth-child(1) button");
    assert_eq!(shown(&mut browser), (1..=94).collect::<Vec<u64>>());
}

#[test]
#[ignore = "needs chromium"]
fn typing_and_a_status_filter_the_table_and_rows_are_counted() {
    let night = nights::night();
    let mut browser = open(&night, DESKTOP, "");
    browser.click("#all input");
    browser.write("MOMENTUM");
    let about: Vec<u64> =
        night.trials.iter().filter(|t| t.description.contains("momentum")).map(|t| t.trial).collect();
    assert!(!about.is_empty());
    assert_eq!(shown(&mut browser), about);
    assert_eq!(
        browser.run("document.querySelector('#all output').textContent"),
        format!("{} of 94", about.len())
    );
    browser.run("document.querySelector('#all select').focus()");
    browser.press("ArrowDown", 40);
    let kept = night.trials.iter().filter(|t| about.contains(&t.trial) && t.status == Status::Keep);
    assert_eq!(shown(&mut browser), kept.map(|t| t.trial).collect::<Vec<u64>>());
    browser.click("#all input");
    browser.run("document.querySelector('#all input').select()");
    browser.press("Backspace", 8);
    let kept = night.trials.iter().filter(|t| t.status == Status::Keep);
    assert_eq!(shown(&mut browser), kept.map(|t| t.trial).collect::<Vec<u64>>());
}

#[test]
#[ignore = "needs chromium"]
fn a_link_opens_its_part_and_code_gets_its_colours() {
    let mut browser = open(&nights::night(), DESKTOP, "t71");
    let is_open = |browser: &mut Browser, part: &str| {
        browser.run(&format!("document.querySelector('{part}').closest('details').open"))
    };
    assert_eq!(is_open(&mut browser, "#t71"), true);
    browser.settle();
    assert!(browser.run("document.querySelectorAll('#t71 ins .hljs-keyword').length").as_u64().unwrap() > 0);
    let code = browser.run("[...document.querySelectorAll('#t71 pre code *')].map(e => getComputedStyle(e).color).filter((c, i, all) => all.indexOf(c) === i).length");
    assert!(code.as_u64().unwrap() >= 3, "{code} colours");
    assert!(
        browser
            .run("document.querySelector('#t71 pre ins').textContent")
            .as_str()
            .unwrap()
            .starts_with("+        let (q, k)")
    );
    let top = browser.run("document.querySelector('#t71').getBoundingClientRect().top");
    assert!((0.0..900.0).contains(&top.as_f64().unwrap()), "it is in the window: {top}");
    // from the plot, where only keeps are stops of the Tab key
    assert_eq!(browser.run("document.querySelectorAll('#progress .wide a:not([tabindex])').length"), 9);
    assert_eq!(is_open(&mut browser, "#t55"), false);
    browser.click(".wide a[href='#t55'] circle");
    assert_eq!(is_open(&mut browser, "#t55"), true);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
#[ignore = "needs chromium"]
fn without_scripts_all_is_there_and_a_link_opens_its_part() {
    let mut browser = Browser::start();
    browser.call("Emulation.setScriptExecutionDisabled", json!({"value": true}));
    browser.open(&report::html(&nights::night()), "t71");
    // expressions of ours run all the same
    assert_eq!(browser.run("document.querySelector('#t71').closest('details').open"), true);
    assert_eq!(browser.run("document.querySelector('#all form').checkVisibility()"), false);
    assert_eq!(shown(&mut browser).len(), 94);
    assert_eq!(
        browser.run(
            "[...document.querySelectorAll('.losses.wide .curve')].filter(c => getComputedStyle(c).display !== 'none').length"
        ),
        4
    );
}

#[test]
#[ignore = "needs chromium"]
fn a_phone_never_scrolls_sideways() {
    for night in [nights::night(), nights::hostile(40, true), Night::default()] {
        let mut browser = open(&night, (360, 740, 2, "light"), "");
        browser.run("document.querySelectorAll('details').forEach(d => d.open = true)");
        browser.settle();
        let width = browser.run("[document.documentElement.scrollWidth, innerWidth]");
        assert_eq!(width, json!([360, 360]), "{}", browser.run(WIDEST));
    }
}

/// What reaches furthest to the right.
const WIDEST: &str = "[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, pre, svg, .said')) \
    .map(e => [e.getBoundingClientRect().right, e.outerHTML.slice(0, 200)]).sort((a, b) => b[0] - a[0])[0]";

#[test]
#[ignore = "needs chromium"]
fn both_themes_differ_and_their_texts_have_contrast() {
    let mut grounds = Vec::new();
    for theme in ["light", "dark"] {
        let mut browser = open(&nights::night(), (1280, 900, 1, theme), "t71");
        browser.run("document.querySelectorAll('details').forEach(d => d.open = true)");
        browser.settle();
        grounds.push(browser.run("getComputedStyle(document.body).backgroundColor"));
        let poor = browser.run(POOR);
        assert_eq!(poor, json!([]), "{theme}");
    }
    assert_ne!(grounds[0], grounds[1]);
}

/// Texts whose contrast with what lies behind them is below 4.5 : 1 (WCAG 2, level AA).
const POOR: &str = "(() => {
    const parse = c => { const n = c.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n };
    const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
    const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c } return [255, 255, 255] };
    const poor = new Set();
    for (const e of document.querySelectorAll('body *')) {
        if (e.matches('script, style, title') || e.closest('[hidden]') || e.disabled || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
        const style = getComputedStyle(e);
        const [a, b] = [light(parse(e.matches('text') ? style.fill : style.color)), light(behind(e))].sort((x, y) => y - x);
        if ((a + .05) / (b + .05) < 4.5) poor.add(e.tagName + '.' + e.getAttribute('class') + ' ' + ((a + .05) / (b + .05)).toFixed(2));
    }
    return [...poor];
})()";

#[test]
#[ignore = "needs chromium"]
fn ticked_curves_are_shown_eight_at_most() {
    let mut browser = open(&nights::night(), DESKTOP, "curves");
    let visible = |browser: &mut Browser| -> Vec<Value> {
        let shown = browser.run("[...document.querySelectorAll('.losses.wide .curve')].filter(c => getComputedStyle(c).display !== 'none').map(c => c.dataset.t)");
        shown.as_array().unwrap().clone()
    };
    browser.click(".pick label:nth-of-type(1) input");
    assert_eq!(visible(&mut browser), ["71", "27", "35"]);
    for n in 5..=9 {
        browser.click(&format!(".pick label:nth-of-type({n}) input"));
    }
    assert_eq!(visible(&mut browser).len(), 8);
    assert_eq!(browser.run("document.querySelectorAll('.pick input:not(:checked):enabled').length"), 0);
    let colours = browser.run("new Set([...document.querySelectorAll('.losses.wide .curve:not([hidden]) path')].map(p => getComputedStyle(p).stroke + getComputedStyle(p).strokeDasharray)).size");
    assert_eq!(colours, 8, "each looks different");
}

/// Makes `docs/pictures` anew: `PICTURES=$PWD/docs/pictures cargo test --release -p report pictures -- --ignored`.
#[test]
#[ignore = "needs chromium"]
fn pictures_of_the_page_are_small() {
    let folder = env::var_os("PICTURES").map_or(PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    fs::create_dir_all(&folder).unwrap();
    for (name, view) in
        [("desktop", DESKTOP), ("dark", (1280, 900, 1, "dark")), ("phone", (390, 1688, 1, "light"))]
    {
        let mut browser = open(&nights::night(), view, "");
        browser.settle();
        let picture = browser.picture();
        assert!(picture.len() < 200_000, "report-{name}.png has {} bytes", picture.len());
        fs::write(folder.join(format!("report-{name}.png")), picture).unwrap();
    }
}
