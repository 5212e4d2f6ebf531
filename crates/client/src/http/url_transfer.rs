//! [`HttpTransfer`] for a URL of this client: with its token, and with the errors of its operations.

use std::time::Duration;

use hyper::header::{self, HeaderMap};

use super::address::HttpAddress;
use super::bearer::header_value;
use super::exchange::HttpExchange;
use super::refusal::refusal;
use super::transfer::{HttpTransfer, TransferFailure};
use crate::client::Client;
use crate::failure::{Cause, Error};
use crate::url::Url;

/// Maximum number of characters of the text of a server in an error.
const TEXT_CHARS_MAX: usize = 200;

/// The transfer of a whole file by an operation, whose errors name it.
pub struct UrlTransfer {
    transfer: HttpTransfer,
    address: HttpAddress,
    url: Url,
    operation: &'static str,
}

impl UrlTransfer {
    /// Creates the transfer of the file with this URL. It sends the token of the URL or of the user, as other requests do.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn new(client: &Client, url: &Url, operation: &'static str) -> Result<Self, Error> {
        let exchange = HttpExchange::new(client, url, operation);
        let address = exchange.address()?;
        let failed = |cause| exchange.error(cause, &address, &[]);
        let mut headers = HeaderMap::new();
        if let Some(token) = exchange.token(&address.server).await.map_err(failed)? {
            let odd = || failed(Cause::BadArgument("the token cannot be sent to an HTTP server".to_owned()));
            headers.insert(header::AUTHORIZATION, header_value(&token).ok_or_else(odd)?);
        }
        let reply_time: Duration = client.settings().operation_time();
        let transfer = HttpTransfer::at(client, address.clone(), headers, reply_time);
        Ok(Self { transfer, address, url: url.clone(), operation })
    }

    /// Returns the transfer.
    #[must_use]
    pub const fn transfer(&self) -> &HttpTransfer {
        &self.transfer
    }

    /// Creates the error of a failed transfer.
    #[must_use]
    pub fn error(&self, failure: TransferFailure) -> Error {
        let cause = match failure {
            TransferFailure::Cause(cause) => cause,
            TransferFailure::Status { status, text } => with_text(refusal(status, &self.address), &text),
        };
        self.error_of(cause)
    }

    /// Creates the error of this operation.
    #[must_use]
    pub fn error_of(&self, cause: Cause) -> Error {
        Error::new(self.operation, &self.url, cause).at(self.url.authority(), &[])
    }
}

/// Adds the first line of the text of a server to an error.
fn with_text(cause: Cause, text: &str) -> Cause {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    // An HTML page contains no more information than the status.
    if line.is_empty() || line.starts_with('<') {
        return cause;
    }
    let line: String =
        line.chars().take(TEXT_CHARS_MAX).map(|c| if c.is_control() { '?' } else { c }).collect();
    match cause {
        Cause::Server { code, text } => Cause::Server { code, text: format!("{text}: {line}") },
        Cause::BadAnswer(text) => Cause::BadAnswer(format!("{text}: {line}")),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::xroot::ErrorCode;

    #[test]
    fn the_text_of_a_server_is_one_line_without_control_characters() {
        let of = |text: &str| {
            let cause = Cause::Server { code: ErrorCode::NO_SPACE, text: "507".to_owned() };
            with_text(cause, text).to_string()
        };
        assert_eq!(of("\n no space\u{1b}[2J \nmore"), "507: no space?[2J");
        assert_eq!(of("<!DOCTYPE html><p>sorry"), "507");
        assert_eq!(of(""), "507");
        assert_eq!(of(&"x".repeat(1000)).len(), "507: ".len() + TEXT_CHARS_MAX);
    }
}
