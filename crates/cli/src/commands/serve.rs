use std::{
    fs,
    net::IpAddr,
    num::{NonZeroU64, NonZeroUsize},
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use elinvar::{Error, ErrorKind, Result};
use elinvar_server::{Server, ServerOptions};

use crate::{plan, served::ServedArgs};

/// Arguments of `elinvar serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Listen on this address
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
    /// Listen on this port; 0 for any that is free
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Demand this key of requests, as `Authorization: Bearer KEY`; repeat for more
    #[arg(long, value_name = "KEY")]
    api_key: Vec<String>,
    /// Demand one of the keys in this file, one on each line: unlike --api-key, no list of processes shows them
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Let at most this many requests wait; others are asked to come again
    #[arg(long, default_value_t = 1024, value_name = "REQUESTS")]
    waiting: usize,
    /// Give up a request after this many seconds
    #[arg(long, default_value = "600", value_name = "SECONDS")]
    timeout: NonZeroU64,
    /// Accept at most this many bytes of a request
    #[arg(long, default_value_t = 8 << 20, value_name = "BYTES")]
    max_body: usize,
    /// Keep at most this many connections open
    #[arg(long, default_value = "1024", value_name = "CONNECTIONS")]
    connections: NonZeroUsize,
    /// Print what memory the models and their caches take, and what fits beside them, and serve nothing
    #[arg(long)]
    plan: bool,
    /// Plan for this much memory, such as 24GiB [default: what is free on the device]
    #[arg(long, value_name = "SIZE", requires = "plan", value_parser = plan::bytes)]
    memory: Option<u64>,
    #[command(flatten)]
    models: ServedArgs,
}

pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    if args.plan {
        return args.models.print_plan(args.memory);
    }
    let keys = args.keys()?;
    // What cannot be logged, as standard error is closed, is answered all the same.
    tracing_subscriber::fmt().log_internal_errors(false).with_ansi(false).with_writer(std::io::stderr).init();
    let Some(models) = args.models.start(args.waiting)? else { return Ok(()) };
    let options = ServerOptions {
        host: args.host,
        port: args.port,
        keys,
        body_bytes: args.max_body,
        request_time: Duration::from_secs(args.timeout.get()),
        connections: args.connections.get(),
        ..ServerOptions::default()
    };
    let names = models.names().join(", ");
    let server = Server::bind(models, options)?;
    eprintln!("serving {names} on http://{}", server.address());
    server.run()
}

impl ServeArgs {
    fn keys(&self) -> Result<Vec<String>> {
        let mut keys = self.api_key.clone();
        if let Some(file) = &self.api_key_file {
            let text = fs::read_to_string(file);
            let text = text.map_err(|e| Error::with_source(ErrorKind::Io, format!("cannot read API keys from {}", file.display()), e))?;
            keys.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned));
            if keys.is_empty() {
                return Err(Error::invalid_argument(format!("{} has no API key: write one on each line", file.display())));
            }
        }
        Ok(keys)
    }
}
