//! Chromium without a window, spoken to over two pipes in the DevTools protocol: no port, no driver.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Seconds after which a browser that hangs is killed; reading from it then fails.
const LIMIT: &str = "300";

/// A browser with one page.
pub(crate) struct Browser {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    calls: u64,
    events: Vec<Value>,
    files: tempfile::TempDir,
}

impl Browser {
    /// Starts it. It reads from descriptor 3 and writes to 4. Without its sandbox, since CI runs as root; it sees
    /// nothing but pages of ours.
    pub(crate) fn start() -> Self {
        let files = tempfile::tempdir().unwrap();
        let mut process = Command::new("sh")
            .args(["-c", r#"exec timeout "$0" chromium "$@" 3<&0 4>&1 >/dev/null 2>&1"#, LIMIT])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", files.path().join("profile").display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut browser = Self { process, to, from, session: None, calls: 0, events: Vec::new(), files };
        let targets = browser.call("Target.getTargets", json!({}));
        let targets = targets["targetInfos"].as_array().unwrap().iter();
        let page = targets.into_iter().find(|t| t["type"] == "page").unwrap()["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({"targetId": page, "flatten": true}));
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Calls a method of the protocol and waits for its answer.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut message = json!({"id": self.calls, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut answer = self.read();
            if answer["id"] == self.calls {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
            self.events.push(answer);
        }
    }

    fn read(&mut self) -> Value {
        let mut message = Vec::new();
        self.from.read_until(0, &mut message).unwrap();
        assert_eq!(
            message.pop(),
            Some(0),
            "chromium is missing, does not start, or hangs: apt-get install chromium"
        );
        serde_json::from_slice(&message).unwrap()
    }

    /// Sets the window: width and height in CSS pixels, pixels for each of these, and the theme.
    pub(crate) fn view(&mut self, width: u32, height: u32, density: u32, theme: &str) {
        let mobile = width < 600;
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": height, "deviceScaleFactor": density, "mobile": mobile}),
        );
        let features = json!([{"name": "prefers-color-scheme", "value": theme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Opens a page from the disk and waits until it is loaded; `part` is what follows `#`.
    pub(crate) fn open(&mut self, html: &str, part: &str) {
        let file: PathBuf = self.files.path().join("report.html");
        fs::write(&file, html).unwrap();
        self.events.clear();
        self.call("Page.navigate", json!({"url": "about:blank"}));
        self.wait("Page.loadEventFired");
        let hash = if part.is_empty() { String::new() } else { format!("#{part}") };
        self.call("Page.navigate", json!({"url": format!("file://{}{hash}", file.display())}));
        self.wait("Page.loadEventFired");
    }

    fn wait(&mut self, event: &str) {
        while !self.events.iter().any(|e| e["method"] == event) {
            let event = self.read();
            self.events.push(event);
        }
        self.events.retain(|e| e["method"] != event);
    }

    /// What an expression comes to, as JSON.
    pub(crate) fn run(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.call("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].take()
    }

    /// Clicks with the mouse on the middle of what `selector` finds first, after it was scrolled into view.
    pub(crate) fn click(&mut self, selector: &str) {
        let place = self.run(&format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{block: 'center'}}); \
             const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] }})()"
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            let params =
                json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", params);
        }
        self.settle();
    }

    /// Types into what has the focus.
    pub(crate) fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
        self.settle();
    }

    /// Presses a key, by its names and its code.
    pub(crate) fn press(&mut self, key: &str, code: u32) {
        let text = if key == "Enter" { "\r" } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let params =
                json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
            self.call("Input.dispatchKeyEvent", params);
        }
        self.settle();
    }

    /// Waits until what was asked for is drawn.
    pub(crate) fn settle(&mut self) {
        self.run(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))",
        );
    }

    /// What is in the window, as PNG.
    pub(crate) fn picture(&mut self) -> Vec<u8> {
        let answer = self.call("Page.captureScreenshot", json!({"format": "png", "optimizeForSpeed": false}));
        STANDARD.decode(answer["data"].as_str().unwrap()).unwrap()
    }

    /// Exceptions, messages on the console, and what the browser has to say, violations of the policy among it.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        self.settle();
        let said = ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"];
        let said = self.events.iter().filter(|e| said.contains(&e["method"].as_str().unwrap_or_default()));
        said.map(|e| e["params"].to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // at the end of its input it leaves by itself; a page that hangs is killed
        let _ = self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        if std::thread::panicking() {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}
