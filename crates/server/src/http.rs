//! What listens.

use std::{
    collections::BTreeMap,
    future::Future,
    net::{IpAddr, SocketAddr, TcpListener},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::{Next, from_fn_with_state},
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};
use elinvar::{Error, ErrorKind, Result};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use serde_json::{Value, json};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    api::{ApiError, Endpoint, Job, document},
    metrics,
    models::Models,
    sse,
    worker::Slot,
};

/// Where a server listens, to whom, and what it accepts.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The address.
    pub host: IpAddr,
    /// The port; zero for any that is free.
    pub port: u16,
    /// Keys, one of which a request must have, unless there are none.
    pub keys: Vec<String>,
    /// Bytes of a request's body, at most.
    pub body_bytes: usize,
    /// From a request's arrival to the end of its answer, at most.
    pub request_time: Duration,
    /// Connections at a time, at most; others wait.
    pub connections: usize,
    /// For answers in progress when the server is asked to stop.
    pub grace: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            host: IpAddr::from([127, 0, 0, 1]),
            port: 8080,
            keys: Vec::new(),
            body_bytes: 8 << 20,
            request_time: Duration::from_secs(600),
            connections: 1024,
            grace: Duration::from_secs(10),
        }
    }
}

/// How long a client may take to send a request's head, and then its body.
const READ_TIME: Duration = Duration::from_secs(30);
/// Bytes of bodies that are read at a time, in KiB: a body is kept several times over while it is read.
const BODIES_KIB: usize = 64 << 10;
const PAGE: &str = include_str!("../page/index.html");

/// Models behind a listening socket.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
}

pub(crate) struct App {
    models: Models,
    options: ServerOptions,
    keys: Vec<blake3::Hash>,
    bodies: Semaphore,
    responses: Mutex<BTreeMap<(String, u16), u64>>,
}

impl Server {
    /// Listens. Connections are accepted once it runs.
    ///
    /// # Errors
    /// The address is taken, or not one of this machine; an empty key.
    pub fn bind(models: Models, options: ServerOptions) -> Result<Self> {
        if options.keys.iter().any(String::is_empty) {
            return Err(Error::invalid_argument("an API key is empty: give one that cannot be guessed"));
        }
        let wanted = SocketAddr::new(options.host, options.port);
        let reject = |e| Error::with_source(ErrorKind::Io, format!("cannot listen on {wanted}"), e);
        let listener = TcpListener::bind(wanted).map_err(reject)?;
        listener.set_nonblocking(true).map_err(reject)?;
        let address = listener.local_addr().map_err(reject)?;
        let keys = options.keys.iter().map(|key| blake3::hash(key.as_bytes())).collect();
        let app = App { models, options, keys, bodies: Semaphore::new(BODIES_KIB), responses: Mutex::default() };
        Ok(Self { listener, address, app: Arc::new(app) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the process is asked to end (Ctrl-C or SIGTERM), then lets answers finish for as long as [`ServerOptions::grace`], and cancels the rest.
    ///
    /// # Errors
    /// The system gives no threads or no signals.
    pub fn run(self) -> Result<()> {
        let models = self.app.models.clone();
        let asked = async {
            if let Err(error) = interrupted().await {
                tracing::error!("signals cannot be received: {error}");
                std::future::pending::<()>().await;
            }
        };
        let lost = async {
            const PULSE: Duration = Duration::from_millis(500);
            while models.check().is_ok() {
                tokio::time::sleep(PULSE).await;
            }
        };
        self.run_until(async {
            tokio::select! {
                () = asked => {}
                () = lost => {}
            }
        })?;
        models.check()
    }

    /// The same until `stop` is ready.
    ///
    /// # Errors
    /// As [`Server::run`].
    pub fn run_until(self, stop: impl Future<Output = ()>) -> Result<()> {
        const THREADS: usize = 2;
        // They read requests; more would only share the processors, and each keeps words with their tokens.
        const READERS: usize = 4;
        let reject = |e| Error::with_source(ErrorKind::Io, "cannot serve", e);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).max_blocking_threads(READERS).enable_all().build().map_err(reject)?;
        let served = runtime.block_on(self.serve(stop)).map_err(reject);
        // What is still computed was cancelled, and what reads a long prompt is not waited for.
        runtime.shutdown_background();
        served
    }

    async fn serve(self, stop: impl Future<Output = ()>) -> std::io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let connections = Arc::new(Semaphore::new(self.app.options.connections));
        let (graceful, grace) = (GracefulShutdown::new(), self.app.options.grace);
        let service = router(self.app);
        let accept = async {
            loop {
                // The semaphore is never closed.
                let Ok(permit) = connections.clone().acquire_owned().await else { return };
                let stream = match listener.accept().await {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        tracing::warn!("a connection cannot be accepted: {error}");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                };
                // Tokens are sent one by one; that they may come later is no reason not to serve.
                let _ = stream.set_nodelay(true);
                let mut builder = http1::Builder::new();
                builder.timer(TokioTimer::new()).header_read_timeout(READ_TIME);
                let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service.clone()));
                let connection = graceful.watch(connection);
                tokio::spawn(async move {
                    if let Err(error) = connection.await {
                        tracing::debug!("a connection ended: {error}");
                    }
                    drop(permit);
                });
            }
        };
        tokio::select! {
            () = accept => {}
            () = stop => {}
        }
        drop(listener);
        tracing::info!("stopping: answers have {} s to finish", grace.as_secs());
        if timeout(grace, graceful.shutdown()).await.is_err() {
            tracing::warn!("answers that did not finish are cancelled");
        }
        Ok(())
    }
}

async fn interrupted() -> std::io::Result<()> {
    #[cfg(unix)]
    {
        let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted,
            _ = terminated.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}

fn router(app: Arc<App>) -> Router {
    let mut router = Router::new()
        .route("/", get(async || Html(PAGE)))
        .route("/health", get(health))
        .route("/v1/models", get(models))
        .route("/v1/models/{name}", get(model))
        .route("/metrics", get(metrics))
        .route("/slots", get(slots))
        .route("/openapi.json", get(async || json_body(&document())));
    for endpoint in Endpoint::ALL {
        let handler = async move |State(app): State<Arc<App>>, request: Request| {
            complete(&app, endpoint, request).await.unwrap_or_else(|error| rejected(Some(endpoint), &error))
        };
        router = router.route(endpoint.path(), post(handler));
    }
    router
        .fallback(async |request: Request| ApiError::not_found(request.uri().path()))
        .method_not_allowed_fallback(async |request: Request| {
            ApiError::with_status(405, "invalid_request_error", format!("{} is not answered at {}", request.method(), request.uri().path()))
        })
        .layer(from_fn_with_state(app.clone(), guard))
        .with_state(app)
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        rejected(None, &self)
    }
}

/// An error as the clients of an endpoint expect it.
fn rejected(endpoint: Option<Endpoint>, error: &ApiError) -> Response {
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, json_body(&endpoint.map_or_else(|| error.body(), |endpoint| endpoint.error(error)))).into_response()
}

fn json_body(value: &Value) -> impl IntoResponse + use<> {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string())
}

/// Checks who asks, before anything of the body is read, and writes the log, which has nothing of what is asked.
async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let (method, path, start) = (request.method().clone(), request.uri().path().to_owned(), Instant::now());
    let response = match app.admit(&method, &path, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => rejected(Endpoint::from_path(&path), &error),
    };
    let status = response.status().as_u16();
    tracing::info!(%method, path, status, milliseconds = start.elapsed().as_millis() as u64, "request");
    // Paths that are not served could be any number.
    let path = if status == 404 { String::new() } else { path };
    *app.responses.lock().unwrap_or_else(PoisonError::into_inner).entry((path, status)).or_default() += 1;
    response
}

impl App {
    fn admit(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<(), ApiError> {
        self.check_host(headers)?;
        let is_public = method == Method::GET && matches!(path, "/" | "/health");
        if is_public || self.keys.is_empty() {
            return Ok(());
        }
        // Anthropic's clients have a header of their own.
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        let given = bearer.or_else(|| headers.get("x-api-key").map(HeaderValue::as_bytes));
        let given = blake3::hash(given.unwrap_or_default());
        // Hashes are compared in constant time, and all of them.
        if self.keys.iter().fold(false, |found, key| found | (*key == given)) {
            return Ok(());
        }
        let error = ApiError::with_status(401, "authentication_error", "the API key is missing or wrong: send it as `Authorization: Bearer KEY`");
        Err(ApiError { code: Some("invalid_api_key"), ..error })
    }

    /// A page from elsewhere may have a name that leads to this machine: without keys, a server for this machine alone answers to its own names.
    fn check_host(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        if !self.keys.is_empty() || !self.options.host.is_loopback() {
            return Ok(());
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit())).map_or(host, |(name, _)| name);
        let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
        if name.is_empty() || name == "localhost" || name.ends_with(".localhost") || address.is_ok() {
            return Ok(());
        }
        let message =
            "without an API key this server answers to localhost and to addresses alone: start it with --api-key, or let the proxy set Host";
        Err(ApiError::with_status(403, "permission_error", message))
    }

    /// A body of JSON, within the limits.
    async fn body(&self, request: Request) -> Result<Bytes, ApiError> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.split(';').next().unwrap_or_default().trim() != "application/json" {
            return Err(ApiError::with_status(415, "invalid_request_error", "send the body with `Content-Type: application/json`"));
        }
        let limit = self.options.body_bytes;
        let too_large = || ApiError::with_status(413, "invalid_request_error", format!("the body has more than {limit} bytes"));
        let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        if length.is_some_and(|length| length > limit) {
            return Err(too_large());
        }
        let kib = length.unwrap_or(limit).div_ceil(1024).clamp(1, BODIES_KIB);
        let read = async {
            // The semaphore is never closed.
            let _permit = self.bodies.acquire_many(kib as u32).await;
            to_bytes(request.into_body(), limit).await.map_err(|_| too_large())
        };
        let late = || ApiError::with_status(408, "invalid_request_error", "the body did not come in time");
        timeout(READ_TIME, read).await.map_err(|_| late())?
    }
}

async fn health(State(app): State<Arc<App>>) -> Response {
    if app.models.served().iter().all(|model| model.worker.is_alive()) {
        return json_body(&json!({"status": "ok"})).into_response();
    }
    ApiError::with_status(503, "unavailable_error", "an engine has stopped: restart the server").into_response()
}

async fn models(State(app): State<Arc<App>>) -> impl IntoResponse {
    json_body(&json!({"object": "list", "data": app.models.objects()}))
}

async fn model(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let name = request.uri().path().trim_start_matches("/v1/models/").to_owned();
    let found = app.models.objects().into_iter().find(|model| model["id"] == name.as_str());
    match found {
        Some(model) => Ok(json_body(&model).into_response()),
        None => Ok(json_body(&app.models.find(Some(&name))?.0.object()).into_response()),
    }
}

async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    let responses = app.responses.lock().unwrap_or_else(PoisonError::into_inner).clone();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics::text(&app.models, responses.iter()))
}

/// The requests of each engine: how far they are, and nothing of what they say.
async fn slots(State(app): State<Arc<App>>) -> impl IntoResponse {
    let mut all = Vec::new();
    for model in app.models.served() {
        let slot = |slot: Slot| {
            json!({
                "model": model.name(), "request": slot.ticket, "choice": slot.index, "prompt_tokens": slot.prompt_tokens,
                "generated_tokens": slot.generated_tokens, "max_tokens": slot.max_tokens, "seconds": slot.seconds,
            })
        };
        all.extend(model.worker.slots().await.into_iter().map(slot));
    }
    json_body(&all.into())
}

/// Reads a request and computes its answer; if this future is dropped because the client is gone, the answer is cancelled.
async fn complete(app: &Arc<App>, endpoint: Endpoint, request: Request<Body>) -> Result<Response, ApiError> {
    let deadline = Instant::now() + app.options.request_time;
    let body = app.body(request).await?;
    let models = app.models.clone();
    let read = tokio::task::spawn_blocking(move || Job::read(&models, endpoint, &body)).await;
    let job = read.map_err(|_| ApiError::with_status(500, "server_error", "the request cannot be read"))??;
    let late = |_| ApiError::timeout();
    if job.is_stream() {
        return Ok(sse::respond(endpoint, timeout_at(deadline, job.stream()).await.map_err(late)??, deadline));
    }
    let answer = timeout_at(deadline, job.answer()).await.map_err(late)??;
    Ok(json_body(&answer).into_response())
}
