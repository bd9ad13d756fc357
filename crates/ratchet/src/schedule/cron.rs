//! A block of lines in the user's crontab.

use super::{Installed, Marker, Plan, call, must};
use crate::{
    error::{Error, Result},
    exec::{End, on_path},
    state::State,
};

/// Bytes of one command beyond which cron refuses the whole table.
const LONGEST: usize = 998;

/// The block, from its marker to its last line.
pub(super) fn block(plan: &Plan) -> Result<String> {
    let marker = plan.marker();
    let hours = plan.window.at();
    let (hour, minute) = hours.split_once(':').unwrap_or_default();
    let (hour, minute) = (hour.trim_start_matches('0'), minute.trim_start_matches('0'));
    let number = |digits: &str| if digits.is_empty() { "0".to_owned() } else { digits.to_owned() };
    let command = command(plan);
    if command.len() > LONGEST {
        return Err(Error::usage(format!(
            "a crontab's command may have {LONGEST} bytes, and this one has {}",
            command.len()
        ))
        .hint("shorten PATH and LD_LIBRARY_PATH for this command"));
    }
    Ok(format!(
        "{}\n{} {} * * * {command}\n# a restart within the night: it goes on\n@reboot {command}\n{}\n",
        marker.line(),
        number(minute),
        number(hour),
        end(&marker.name),
    ))
}

/// Where a night that cron began writes what it says.
pub(super) fn log(root: &str) -> String {
    format!("{root}/.ratchet/schedule.log")
}

fn command(plan: &Plan) -> String {
    let env: String = plan.env.iter().map(|(name, value)| format!(" {name}={}", quoted(value))).collect();
    let words = |args: Vec<String>| {
        std::iter::once(&plan.program).chain(&args).map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    };
    let command = format!(
        "cd {} && export{env} && {} && {} >>{} 2>&1",
        quoted(&plan.root),
        words(plan.within()),
        words(plan.run()),
        quoted(&log(&plan.root)),
    );
    // cron takes a bare one for a new line
    command.replace('%', "\\%")
}

/// One word for sh.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_/.:=+,-".contains(c);
    match word.chars().all(plain) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

fn end(name: &str) -> String {
    format!("# end of {name}")
}

/// The crontab; empty where the user has none. Anything else that goes wrong must not be taken for that.
fn read() -> Result<String> {
    match call(&["crontab", "-l"], None) {
        Ok(text) => Ok(text),
        Err((End::Exited(1), said)) if said.contains("no crontab for") => Ok(String::new()),
        Err((end, said)) => Err(Error::environment(format!("`crontab -l` {end}: {said}"))
            .hint("run it yourself to see more; nothing was changed")),
    }
}

/// The table without our block, and the block. Exit code 2 where it has no end.
fn split(table: &str, name: &str) -> Result<(String, Option<String>)> {
    let mut lines = table.split_inclusive('\n');
    let (mut rest, mut block) = (String::new(), String::new());
    while let Some(line) = lines.next() {
        if Marker::of(line).is_none_or(|marker| marker.name != name) {
            rest += line;
            continue;
        }
        block += line;
        let last = end(name);
        if !lines.by_ref().any(|line| {
            block += line;
            line.trim_end() == last
        }) {
            return Err(Error::usage(format!("the crontab has our first line, but not our last: {last}"))
                .hint("correct it with `crontab -e`; nothing was changed"));
        }
    }
    Ok((rest, Some(block).filter(|block| !block.is_empty())))
}

fn write(table: String) -> Result<()> {
    must(&["crontab", "-"], Some(table.clone().into_bytes()))?;
    match read()? == table {
        true => Ok(()),
        false => Err(Error::internal("the crontab is not what was written").hint("look with `crontab -l`")),
    }
}

/// Adds or replaces the block; says what was done.
pub(super) fn install(plan: &Plan) -> Result<String> {
    if on_path("crontab").is_none() {
        return Err(Error::environment("neither a systemd manager of yours nor cron is here")
            .hint("install cron, or start `ratchet run --until HH:MM` by hand"));
    }
    let block = block(plan)?;
    let (mut table, _) = split(&read()?, &super::name(&plan.root))?;
    State::new(std::path::Path::new(&plan.root)).create()?; // the log's folder
    if !table.is_empty() && !table.ends_with('\n') {
        table.push('\n');
    }
    table += &block;
    write(table)?;
    Ok("added to your crontab (`crontab -l` shows it)\n".to_owned())
}

/// Takes the block away; says what was done, nothing where there was nothing.
pub(super) fn remove(name: &str) -> Result<String> {
    if on_path("crontab").is_none() {
        return Ok(String::new());
    }
    let (table, block) = split(&read()?, name)?;
    if block.is_none() {
        return Ok(String::new());
    }
    write(table)?;
    Ok("removed from your crontab\n".to_owned())
}

/// The block of this name.
pub(super) fn installed(name: &str) -> Option<Installed> {
    on_path("crontab")?;
    let (_, block) = split(&read().ok()?, name).ok()?;
    let marker = Marker::of(&block?)?;
    Some(Installed { window: marker.window, place: "your crontab".to_owned(), problem: None })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::tests::plan;
    use super::*;

    #[test]
    fn percent_signs_do_not_cut_a_line_and_times_are_crons() {
        let block = block(&plan("/srv/100%/gpt", "09:05", "17:00")).unwrap();
        let lines: Vec<&str> = block.lines().collect();
        assert!(lines[1].starts_with("5 9 * * * cd '/srv/100\\%/gpt' && "), "{block}");
        assert!(lines[3].starts_with("@reboot cd "));
        for line in [lines[1], lines[3]] {
            assert!(line.match_indices('%').all(|(at, _)| line[..at].ends_with('\\')), "{line}");
        }
        assert!(super::block(&plan("/r", "00:00", "07:00")).unwrap().contains("\n0 0 * * * "));
    }

    /// sh itself says what the words are.
    #[test]
    fn the_shell_reads_odd_paths_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("a b 'q' \"q\" $HOME `x` 100% \\ ;#&");
        std::fs::create_dir_all(root.join(".ratchet")).unwrap();
        let mut plan = plan(root.to_str().unwrap(), "23:00", "07:00");
        plan.program = "printf".to_owned();
        let line = command(&plan).replace("\\%", "%"); // as cron hands it on
        let out = Command::new("sh").args(["-c", &line]).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        assert_eq!(String::from_utf8(out.stdout).unwrap(), "within"); // printf's first argument is its format
        assert_eq!(std::fs::read_to_string(log(&plan.root)).unwrap(), "run");
    }

    #[test]
    fn only_our_block_leaves_the_table() {
        let plan = plan("/srv/gpt", "23:00", "07:00");
        let (name, block) = (super::super::name("/srv/gpt"), block(&plan).unwrap());
        let foreign = "MAILTO=me\n# ratchet schedule another: from 1 to 2 in /x\n5 * * * * true\n";
        let table = format!("{foreign}{block}@daily backup");
        assert_eq!(split(&table, &name).unwrap(), (format!("{foreign}@daily backup"), Some(block.clone())));
        assert_eq!(split(foreign, &name).unwrap(), (foreign.to_owned(), None));
        let cut = block.replace("# end of", "# end");
        assert_eq!(split(&cut, &name).unwrap_err().kind.exit_code(), 2);
    }
}
