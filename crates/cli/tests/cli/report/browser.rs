//! Drives a real browser over the pipe of its DevTools protocol: a message is JSON and a zero byte.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};

use crate::support::hang::HUNG;
use crate::support::needs;

pub struct Browser {
    child: Child,
    to: Option<ChildStdin>,
    from: Receiver<Value>,
    next: u64,
    session: Option<String>,
    /// Errors in pages: of scripts, and violations of the content policy.
    pub errors: Vec<String>,
    loaded: bool,
    _profile: tempfile::TempDir,
}

impl Browser {
    #[track_caller]
    pub fn open() -> Option<Self> {
        let program = needs::find(&needs::CHROMIUM)?;
        let profile = tempfile::tempdir().unwrap();
        // The pipes of the DevTools are the descriptors 3 and 4.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1",
            ])
            .arg(program)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args(["--disable-background-networking", "--disable-dev-shm-usage"])
            .args(["--remote-debugging-pipe", "--window-size=1280,900"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (send, from) = channel();
        std::thread::spawn(move || {
            for message in out.split(0) {
                let Ok(message) = message else { return };
                if send
                    .send(serde_json::from_slice(&message).unwrap())
                    .is_err()
                {
                    return;
                }
            }
        });
        let mut browser = Self {
            to: child.stdin.take(),
            child,
            from,
            next: 0,
            session: None,
            errors: Vec::new(),
            loaded: false,
            _profile: profile,
        };
        browser.attach();
        Some(browser)
    }

    fn attach(&mut self) {
        let target = self.call("Target.createTarget", json!({"url": "about:blank"}));
        let id = &target["targetId"];
        let session = self.call(
            "Target.attachToTarget",
            json!({"targetId": id, "flatten": true}),
        );
        self.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
    }

    /// Calls a method and returns its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let to = self.to.as_mut().unwrap();
        to.write_all(format!("{message}\0").as_bytes()).unwrap();
        to.flush().unwrap();
        loop {
            let answer = self.receive();
            if answer["id"] == id {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    fn receive(&mut self) -> Value {
        let message = self
            .from
            .recv_timeout(HUNG)
            .expect("the browser says nothing");
        let params = &message["params"];
        match message["method"].as_str() {
            Some("Page.loadEventFired") => self.loaded = true,
            Some("Runtime.exceptionThrown") => self.errors.push(params.to_string()),
            Some("Log.entryAdded") if params["entry"]["level"] != "info" => {
                self.errors.push(params["entry"].to_string());
            }
            Some("Runtime.consoleAPICalled") => self.errors.push(params["args"].to_string()),
            _ => {}
        }
        message
    }

    /// Opens a file and waits until its report is complete. Returns the time that it took.
    pub fn visit(&mut self, path: &Path) -> Duration {
        let begun = Instant::now();
        self.loaded = false;
        let url = format!("file://{}", path.display());
        self.call("Page.navigate", json!({ "url": url }));
        while !self.loaded {
            self.receive();
        }
        self.wait("document.getElementById('made').textContent !== ''");
        begun.elapsed()
    }

    /// Returns the value of an expression of the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let found = self.call("Runtime.evaluate", params);
        assert!(
            found.get("exceptionDetails").is_none(),
            "{expression}: {found}"
        );
        found["result"]["value"].clone()
    }

    pub fn text(&mut self, selector: &str) -> String {
        let found = self.value(&format!("document.querySelector({selector:?}).textContent"));
        found.as_str().unwrap().to_owned()
    }

    /// Waits until an expression is true.
    pub fn wait(&mut self, expression: &str) {
        let begun = Instant::now();
        while self.value(&format!("!!({expression})")) != true {
            if begun.elapsed() > HUNG {
                let page = self.value("document.body.innerText");
                panic!("never true: {expression}\n{:?}\n{page}", self.errors);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Clicks on a place within an element, as shares of its width and height.
    pub fn click_at(&mut self, selector: &str, (across, down): (f64, f64)) {
        let place = self.value(&format!(
            "(() => {{ const e = document.querySelector({selector:?}); \
             e.scrollIntoView({{block: 'center', behavior: 'instant'}}); \
             const r = e.getBoundingClientRect(); \
             return [r.x + r.width * {across}, r.y + r.height * {down}]; }})()"
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            let params = json!({"type": kind, "x": place[0], "y": place[1], "button": "left",
                "clickCount": 1});
            self.call("Input.dispatchMouseEvent", params);
        }
    }

    pub fn click(&mut self, selector: &str) {
        self.click_at(selector, (0.5, 0.5));
    }

    pub fn focus(&mut self, selector: &str) {
        self.value(&format!("document.querySelector({selector:?}).focus()"));
    }

    /// Presses a key such as `Enter`, `ArrowDown` or `b`.
    pub fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Enter" => (13, Some("\r")),
            "ArrowRight" => (39, None),
            "ArrowDown" => (40, None),
            "PageDown" => (34, None),
            "End" => (35, None),
            "Home" => (36, None),
            letter => (0, Some(letter)),
        };
        let mut params = json!({"type": "keyDown", "key": key, "windowsVirtualKeyCode": code});
        if let Some(text) = text {
            params["text"] = json!(text);
        }
        self.call("Input.dispatchKeyEvent", params.clone());
        params["type"] = json!("keyUp");
        self.call("Input.dispatchKeyEvent", params);
    }

    /// Types into the element that has the focus.
    pub fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Sets the preferred colour scheme: `light` or `dark`.
    pub fn prefer(&mut self, scheme: &str) {
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.call("Emulation.setEmulatedMedia", json!({"features": [feature]}));
    }

    pub fn resize(&mut self, width: u32, height: u32) {
        let params =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", params);
    }

    /// Saves a screenshot in the folder `LOOPSTORE_REPORT_PICTURES`, if the variable is set.
    pub fn picture(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("LOOPSTORE_REPORT_PICTURES") else {
            return;
        };
        let save = |file: String, data: &Value| {
            let data = base64::engine::general_purpose::STANDARD
                .decode(data.as_str().unwrap())
                .unwrap();
            std::fs::write(Path::new(&folder).join(file), data).unwrap();
        };
        let shot = self.call(
            "Page.captureScreenshot",
            json!({"captureBeyondViewport": true}),
        );
        save(format!("{name}.png"), &shot["data"]);
        let pdf = self.call("Page.printToPDF", json!({"printBackground": true}));
        save(format!("{name}.pdf"), &pdf["data"]);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends when its pipe is closed.
        self.to = None;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
