//! The client side of HTTP: files of servers that support ranges, and of WebDAV.
//!
//! | file | content |
//! |---|---|
//! | `file` | [`HttpFile`]: a file that is open for reading |
//! | `files` | [`HttpFiles`]: status, listings and checksums of paths |
//! | `changes` | removal and creation of entries, by DELETE and MKCOL |
//! | `exchange` | one request, through redirects, pauses and closed connections |
//! | `pool` | connections, which are kept for later requests |
//! | `stream` | the socket of a connection, in clear text or with TLS |
//! | `address` | a server and the target of a request; where redirects lead |
//! | `headers` | [`ContentRange`], versions of files, times |
//! | `bearer` | the tokens that requests carry |
//! | `refusal` | statuses of replies as errors |
//! | `elements` | XML in replies, read while it arrives |
//! | `multistatus` | listings of WebDAV |
//! | `object_store` | [`ObjectStore`]: a bucket with S3, and the keys for it |
//! | `user_stores` | the stores of `s3://` URLs |
//! | `object_files` | status and listings of an object store |
//! | `object_listing` | pages of these listings |
//! | `object_upload` | [`ObjectUpload`]: a new object, sent whole or in parts |
//! | `object_changes` | removal, renaming and directories in an object store |
//! | `transfer` | [`HttpTransfer`]: a whole file from or to a server, for third-party copies |
//! | `downloaded_file` | [`DownloadedFile`]: the file or the range of such a transfer that arrives |
//! | `web_upload` | [`HttpUpload`]: a new file of a web server, under a temporary name until it is whole |
//! | `copy_order` | [`CopyMarkers`]: a copy between two servers, and its progress |
//! | `url_transfer` | [`UrlTransfer`]: such a transfer for a URL of this client, with its token |
//!
//! Limits: 64 KiB and 128 headers of a reply, 10 redirects, 64 unused connections to each server. A body is read
//! into the place that the caller has given, and never beyond what was asked for.
//!
//! A redirect never leads from TLS to clear text. Only the server of the URL gets a token.

mod address;
mod bearer;
mod changes;
mod copy_order;
mod downloaded_file;
mod elements;
mod exchange;
mod file;
mod files;
mod headers;
mod multistatus;
mod object_changes;
mod object_files;
mod object_listing;
mod object_store;
mod object_upload;
mod pool;
mod refusal;
mod stream;
mod transfer;
mod url_transfer;
mod user_stores;
mod web_upload;

pub use copy_order::{ActiveServer, CopyEvent, CopyMarkers};
pub use downloaded_file::DownloadedFile;
pub use file::HttpFile;
pub use files::HttpFiles;
pub use headers::ContentRange;
pub use multistatus::check_multistatus;
pub use object_listing::check_object_listing;
pub use object_store::ObjectStore;
pub use object_upload::{
    OBJECT_PART_BYTES_MIN, OBJECT_PARTS_MAX, ObjectUpload, PartsId, StoredPart, object_part_bytes,
};
pub(crate) use pool::HttpPool;
pub use transfer::{HttpTransfer, TransferFailure, UploadSource};
pub use url_transfer::UrlTransfer;
pub use web_upload::HttpUpload;
