//! Keeps the machine awake while a run goes on, where it can be asked to.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::{
    exec::{allowed_env, on_path},
    processes::{put_back, spawn_apart},
};

/// A program that holds the machine awake; it ends when this is dropped, and when the driver is gone, however it went.
#[derive(Debug)]
pub struct Inhibitor(Child);

impl Inhibitor {
    /// Asks for it; `None` where there is nothing to ask. Where it is refused nothing happens: `doctor` warns.
    pub fn hold(root: &Path) -> Option<Self> {
        use std::os::unix::process::CommandExt;

        let [program, args @ ..] = &request(root)[..] else { return None };
        on_path(program)?;
        let mut process = Command::new(program);
        process.args(args).env_clear().envs(allowed_env());
        // what it runs reads until the driver's end of the pipe is closed
        process.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        spawn_apart(&mut process).ok().map(Self)
    }
}

impl Drop for Inhibitor {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.kill(); // gone already is what we want
        let _ = self.0.wait();
        put_back(self.0.id());
    }
}

/// logind's, or the Mac's.
fn request(root: &Path) -> Vec<String> {
    match cfg!(target_os = "macos") {
        true => vec!["caffeinate".into(), "-i".into(), "-w".into(), std::process::id().to_string()],
        false => vec![
            "systemd-inhibit".into(),
            "--what=sleep:idle".into(),
            "--who=ratchet".into(),
            format!("--why=trials run in {}", root.display()),
            "cat".into(),
        ],
    }
}
