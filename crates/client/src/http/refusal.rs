//! Statuses of replies as errors.

use hyper::StatusCode;
use wire::xroot::ErrorCode;

use super::address::HttpAddress;
use super::exchange::reason;
use crate::failure::Cause;

/// Returns the error of a reply that is not what was asked for.
pub(super) fn refusal(status: StatusCode, address: &HttpAddress) -> Cause {
    let text = format!("{address} answers {}", reason(status));
    let code = match status.as_u16() {
        401 => {
            let remedy = "give a token (authz, or BEARER_TOKEN and https)";
            return Cause::NotAuthenticated(format!("{text}; {remedy}"));
        }
        403 | 451 => ErrorCode::NOT_AUTHORIZED,
        404 | 410 => ErrorCode::NOT_FOUND,
        405 | 501 => ErrorCode::UNSUPPORTED,
        400 | 414 | 431 => ErrorCode::ARG_INVALID,
        412 => return Cause::Changed(text),
        423 => ErrorCode::FILE_LOCKED,
        429 | 503 => ErrorCode::OVERLOADED,
        507 => ErrorCode::NO_SPACE,
        500.. => {
            let text = format!("{text}; the reason is in the log of that server");
            return Cause::Server { code: ErrorCode::SERVER_ERROR, text };
        }
        _ => return Cause::BadAnswer(text),
    };
    Cause::Server { code, text }
}
