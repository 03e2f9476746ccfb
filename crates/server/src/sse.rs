//! Server-sent events.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures_core::Stream;
use serde_json::Value;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

use crate::api::{ApiError, Chunks, Endpoint};

/// Parts that wait for a slow reader, at most; what the engine brings meanwhile waits as tokens.
const BUFFERED: usize = 16;

struct Events(mpsc::Receiver<Event>);

impl Stream for Events {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|event| event.map(Ok))
    }
}

/// The parts of an answer as they come, until `deadline`; the answer is cancelled when the reader is gone.
pub(crate) fn respond(endpoint: Endpoint, chunks: Chunks, deadline: Instant) -> Response {
    let (sender, receiver) = mpsc::channel(BUFFERED);
    tokio::spawn(async move {
        let work = async {
            match timeout_at(deadline, pass(chunks, &sender)).await {
                Ok(passed) => passed,
                Err(_) => Err(ApiError::timeout()),
            }
        };
        tokio::select! {
            () = sender.closed() => {}
            ended = work => {
                let last = match ended {
                    Ok(()) if endpoint.has_events() => return,
                    Ok(()) => Event::default().data("[DONE]"),
                    Err(error) => event(&endpoint.stream_error(&error)),
                };
                // A slow reader that cannot take one more event in time is as good as gone.
                let _ = sender.send_timeout(last, LAST).await;
            }
        }
    });
    Sse::new(Events(receiver)).keep_alive(KeepAlive::default()).into_response()
}

/// How long the last event waits for its reader.
const LAST: std::time::Duration = std::time::Duration::from_secs(10);

async fn pass(mut chunks: Chunks, sender: &mpsc::Sender<Event>) -> Result<(), ApiError> {
    while let Some(chunk) = chunks.next().await? {
        if sender.send(event(&chunk)).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// An event, which begins with the name that is its type, as line by line readers expect.
fn event(value: &Value) -> Event {
    let event = match value["type"].as_str() {
        Some(name) => Event::default().event(name),
        None => Event::default(),
    };
    event.data(value.to_string())
}
