use minijinja::{Environment, Error, ErrorKind, Value, escape_formatter, value::Kwargs};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::{json, limits::MAX_OUTPUT};

/// Adds what transformers' environment has beyond Jinja, and bounds the strings that pass through.
pub(super) fn install(environment: &mut Environment<'static>) {
    environment.set_unknown_method_callback(|state, value, method, arguments| bounded(unknown_method_callback(state, value, method, arguments)?));
    environment.set_formatter(|out, state, value| escape_formatter(out, state, &bounded(value.clone())?));
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> { Err(Error::new(ErrorKind::InvalidOperation, message)) });
    environment.add_filter("tojson", |value: &Value, options: Kwargs| -> Result<String, Error> {
        let indent = options.get::<Option<usize>>("indent")?;
        // Text is never reduced to ASCII, which is transformers' default.
        options.get::<Option<bool>>("ensure_ascii")?;
        options.assert_all_used()?;
        json::write(value, indent)
    });
}

fn bounded(value: Value) -> Result<Value, Error> {
    if value.as_str().is_some_and(|text| text.len() > MAX_OUTPUT) {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("a string of more than {} MiB", MAX_OUTPUT >> 20)));
    }
    Ok(value)
}
