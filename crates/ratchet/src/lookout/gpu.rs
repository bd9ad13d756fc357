//! A GPU's figures, from the driver's own library.
//!
//! The library is another's code and speaks to a driver that may be broken: it may hang, or end the process that
//! asks. So a process of its own asks, a line a second, and whoever watches reads what there is.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use nvml_wrapper::{Nvml, enum_wrappers::device::TemperatureSensor, error::NvmlError};
use serde::{Deserialize, Serialize};
use watch::scene;

use crate::{
    error::{Error, Result},
    processes::die_with_driver,
    runlog::plain,
};

/// The hidden command of the process that asks.
pub const COMMAND: &str = "gpu-figures";
/// How often it asks.
const EVERY: Duration = Duration::from_secs(1);
/// Older figures are not shown.
const STALE: Duration = Duration::from_secs(5);

/// One line.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Figures {
    name: String,
    busy_percent: Option<u32>,
    memory_bytes: Option<(u64, u64)>,
    celsius: Option<u32>,
    milliwatts: Option<u32>,
    most_milliwatts: Option<u32>,
}

/// Prints figures, a line of JSON a second, until nobody reads them. Exit code 4 where there are none.
pub fn serve() -> Result<()> {
    let failed = |error: NvmlError| Error::environment("the GPU's driver gives no figures").because(error);
    let nvml = Nvml::init().map_err(failed)?;
    let chosen = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let first = chosen.split(',').next().unwrap_or_default().trim();
    let device = match first.starts_with("GPU-") {
        true => nvml.device_by_uuid(first),
        false => nvml.device_by_index(first.parse().unwrap_or(0)),
    };
    let device = device.map_err(failed)?;
    loop {
        let figures = Figures {
            name: device.name().unwrap_or_default(),
            busy_percent: device.utilization_rates().ok().map(|rates| rates.gpu),
            memory_bytes: device.memory_info().ok().map(|memory| (memory.used, memory.total)),
            celsius: device.temperature(TemperatureSensor::Gpu).ok(),
            milliwatts: device.power_usage().ok(),
            most_milliwatts: device.enforced_power_limit().ok(),
        };
        let line = serde_json::to_string(&figures).unwrap_or_default(); // strings and numbers: cannot fail
        if writeln!(std::io::stdout(), "{line}").is_err() {
            return Ok(());
        }
        std::thread::sleep(EVERY);
    }
}

/// The process that asks, and the latest of its lines.
pub(super) struct Feed {
    child: Child,
    latest: Arc<Mutex<Option<(Instant, scene::Gpu)>>>,
}

impl Feed {
    /// Starts it; `None` where that cannot be done.
    pub(super) fn start() -> Option<Self> {
        let mut command = Command::new(std::env::current_exe().ok()?);
        command.arg(COMMAND);
        Self::of(command)
    }

    fn of(mut command: Command) -> Option<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.process_group(0); // a Ctrl-C is for whoever watches
        // SAFETY: between fork and exec the closure makes one system call and touches no memory.
        unsafe {
            command.pre_exec(die_with_driver);
        }
        let mut child = command.spawn().ok()?;
        let lines = BufReader::new(child.stdout.take()?).lines().map_while(|line| line.ok());
        let latest = Arc::new(Mutex::new(None));
        let shared = latest.clone();
        std::thread::spawn(move || {
            for figures in lines.map_while(|line| serde_json::from_str::<Figures>(&line).ok()) {
                let shown = Some((Instant::now(), figures.shown()));
                *shared.lock().unwrap_or_else(PoisonError::into_inner) = shown;
            }
        });
        Some(Self { child, latest })
    }

    /// The latest figures, where they are recent.
    pub(super) fn figures(&self) -> Option<scene::Gpu> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.as_ref().filter(|(at, _)| at.elapsed() < STALE).map(|(_, gpu)| gpu.clone())
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        // not waited for: one that hangs in the driver cannot even be killed
        let _ = self.child.kill();
    }
}

impl Figures {
    fn shown(self) -> scene::Gpu {
        let watts = |milliwatts: u32| milliwatts / 1_000;
        scene::Gpu {
            name: plain(&self.name, 60),
            busy_percent: self.busy_percent,
            memory_bytes: self.memory_bytes,
            celsius: self.celsius,
            watts: self.milliwatts.map(|drawn| (watts(drawn), self.most_milliwatts.map(watts))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(script: &str) -> Feed {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Feed::of(command).unwrap()
    }

    /// What comes of a script's lines once it is over, or once there are figures.
    fn figures(feed: &mut Feed) -> Option<scene::Gpu> {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(20) {
            if let Some(figures) = feed.figures() {
                return Some(figures);
            }
            if feed.child.try_wait().unwrap().is_some() {
                return feed.figures();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    #[test]
    fn a_driver_that_breaks_costs_the_figures_and_nothing_else() {
        for script in ["kill -SEGV $$", "exit 4", "echo 'NVRM: Xid 79'", "printf '\\377\\n'"] {
            assert_eq!(figures(&mut feed(script)), None, "{script}");
        }
        let line = r#"{"name":"a card","busy_percent":98,"memory_bytes":null,"celsius":65,"milliwatts":612345,"most_milliwatts":null}"#;
        let shown = figures(&mut feed(&format!("echo '{line}'; exec sleep 60"))).unwrap();
        assert_eq!(
            (shown.busy_percent, shown.watts, shown.memory_bytes),
            (Some(98), Some((612, None)), None)
        );
    }
}
