//! A server for a test, and a client that shows what is sent.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use elinvar::{DType, Executor, Precision};
use elinvar_llm::{Config, EngineOptions, Model, ModelFiles, Weights};
use elinvar_server::{Embedder, Models, Served, Server, ServerOptions};
use serde_json::Value;
use tokio::sync::oneshot;

/// A machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const NAME: &str = "shakespeare";

/// A running server; it ends with the value.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) models: Models,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) text: String,
}

pub(crate) fn options() -> EngineOptions {
    EngineOptions { running: 8, ..EngineOptions::new(512, DType::F16) }
}

pub(crate) fn start() -> Running {
    start_with(options(), ServerOptions::default())
}

pub(crate) fn start_with(engine: EngineOptions, options: ServerOptions) -> Running {
    serve(vec![served(&folder(), engine, &[])], Vec::new(), options)
}

/// The model in the repository with a chat template.
pub(crate) fn start_with_template(template: &str) -> Running {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    fs::write(copy.path().join("chat_template.jinja"), template).unwrap();
    serve(vec![served(copy.path(), options(), &[])], Vec::new(), ServerOptions::default())
}

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/shakespeare")
}

pub(crate) fn served(folder: &Path, engine: EngineOptions, adapters: &[(String, PathBuf)]) -> Served {
    let files = ModelFiles::open(folder).unwrap();
    let executor = Executor::new_cpu(2.try_into().unwrap()).unwrap().with_precision(Precision::Strict);
    let model = Model::new(&executor, Config::read(&files).unwrap(), &Weights::open(&files).unwrap()).unwrap();
    Served::start(NAME, &files, Arc::new(model), engine, adapters).unwrap()
}

pub(crate) fn serve(served: Vec<Served>, embedders: Vec<Embedder>, options: ServerOptions) -> Running {
    let models = Models::new(served, embedders).unwrap();
    let server = Server::bind(models.clone(), ServerOptions { port: 0, ..options }).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let address = server.address();
    let run = move || server.run_until(async { stopped.await.unwrap_or_default() }).unwrap();
    Running { address, models, stop: Some(stop), thread: Some(thread::spawn(run)) }
}

impl Running {
    /// Asks it to stop, and waits until it has.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    pub(crate) fn open(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n", self.address, body.len());
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        stream
    }

    pub(crate) fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Response {
        read(self.open(method, path, headers, body))
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.send("GET", path, "", b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Response {
        self.send("POST", path, "Content-Type: application/json\r\n", body.to_string().as_bytes())
    }

    /// A request whose answer is read later, or never.
    pub(crate) fn ask(&self, path: &str, body: &Value) -> TcpStream {
        self.open("POST", path, "Content-Type: application/json\r\n", body.to_string().as_bytes())
    }

    /// The answer to a request that is right.
    pub(crate) fn answer(&self, path: &str, body: &Value) -> Value {
        let response = self.post(path, body);
        assert_eq!(response.status, 200, "{}", response.text);
        response.json()
    }

    /// The error of a request that is wrong: its status, its field, its message.
    pub(crate) fn error(&self, path: &str, body: &Value) -> (u16, String, String) {
        let response = self.post(path, body);
        let error = &response.json()["error"];
        let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        (response.status, text("param"), text("message"))
    }

    /// Waits until the engine has nothing to do; all its pages are free then.
    pub(crate) fn wait_until_idle(&self) {
        let start = Instant::now();
        loop {
            let statistics = self.models.served()[0].statistics();
            if statistics.running + statistics.waiting == 0 {
                assert_eq!(statistics.free_pages, statistics.pages);
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{statistics:?}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until so many requests run.
    pub(crate) fn wait_for_running(&self, count: usize) {
        let start = Instant::now();
        while self.models.served()[0].statistics().running < count {
            assert!(start.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// All that comes until the server closes.
pub(crate) fn read(mut stream: TcpStream) -> Response {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let _ = stream.shutdown(Shutdown::Both);
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: BTreeMap<_, _> =
        lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    let mut body = bytes[end + 4..].to_vec();
    if headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked") {
        body = unchunked(&body);
    }
    Response { status, headers, text: String::from_utf8(body).unwrap() }
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let end = bytes.windows(2).position(|window| window == b"\r\n").expect("a chunk's length");
        let length = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        if length == 0 {
            return whole;
        }
        whole.extend_from_slice(&bytes[end + 2..][..length]);
        bytes = &bytes[end + 2 + length + 2..];
    }
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    /// The events of a stream that ends as it should.
    pub(crate) fn events(&self) -> Vec<Value> {
        assert_eq!((self.status, self.headers["content-type"].as_str()), (200, "text/event-stream"), "{}", self.text);
        let mut events: Vec<_> = self.text.split("\n\n").filter(|event| !event.is_empty() && !event.starts_with(':')).collect();
        assert_eq!(events.pop(), Some("data: [DONE]"), "{}", self.text);
        events.into_iter().map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap()).collect()
    }
}
