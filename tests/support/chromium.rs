//! A headless Chromium of a test's own, spoken to over a pipe: its pages, what
//! they say on the console, what they ask for, how they look.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};

use crate::waiting::within;

const OPTIONS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
];

/// A running browser with one page.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: Option<String>,
    number: u64,
    events: Vec<Value>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts one.
    pub fn start() -> Self {
        let profile = tempfile::tempdir().unwrap();
        // It hears on descriptor 3 and speaks on 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null"])
            .arg(crate::program::found("chromium", "browser"))
            .args(OPTIONS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut browser = Self {
            child,
            input,
            output,
            session: None,
            number: 0,
            events: Vec::new(),
            _profile: profile,
        };
        let made = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let target = json!({"targetId": made["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", target);
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Network", "DOM", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Asks, and waits for the answer.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.input.write_all(&bytes).unwrap();
        loop {
            let mut bytes = Vec::new();
            self.output.read_until(0, &mut bytes).unwrap();
            assert_eq!(bytes.pop(), Some(0), "Chromium ended");
            let mut said: Value = serde_json::from_slice(&bytes).unwrap();
            if said["id"] == self.number {
                assert!(said["error"].is_null(), "{method}: {}", said["error"]);
                return said["result"].take();
            }
            self.events.push(said);
        }
    }

    /// The size of the window, in pixels of the page, and the colours it prefers.
    pub fn show_as(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", scheme);
    }

    /// Opens a page.
    pub fn open(&mut self, address: &str) {
        let opened = self.call("Page.navigate", json!({"url": address}));
        assert!(opened["errorText"].is_null(), "{address}: {opened}");
    }

    /// The value of an expression in the page, promises awaited.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut got = self.call("Runtime.evaluate", asked);
        assert!(got["exceptionDetails"].is_null(), "{expression}: {got}");
        got["result"]["value"].take()
    }

    /// Waits until an expression is true in the page.
    pub fn wait_for(&mut self, expression: &str) {
        let guarded =
            format!("(() => {{ try {{ return !!({expression}); }} catch {{ return false; }} }})()");
        within(Duration::from_secs(60), expression, || {
            self.evaluate(&guarded) == true
        });
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "ArrowRight" => 39,
            _ => 13,
        };
        for kind in ["rawKeyDown", "keyUp"] {
            let event =
                json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Writes what is to be seen as a PNG.
    pub fn shoot(&mut self, into: &Path) {
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let bytes = BASE64_STANDARD
            .decode(shot["data"].as_str().unwrap())
            .unwrap();
        std::fs::write(into, bytes).unwrap();
    }

    /// What went wrong in pages so far, as their consoles say.
    pub fn errors(&self) -> Vec<String> {
        let wrong = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => event["params"]["type"] == "error",
            Some("Log.entryAdded") => event["params"]["entry"]["level"] == "error",
            _ => false,
        };
        self.events
            .iter()
            .filter(wrong)
            .map(Value::to_string)
            .collect()
    }

    /// Every address that pages asked for.
    pub fn asked(&self) -> Vec<String> {
        let requests =
            (self.events.iter()).filter(|it| it["method"] == "Network.requestWillBeSent");
        let address = |it: &Value| it["params"]["request"]["url"].as_str().map(str::to_owned);
        requests.filter_map(address).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
