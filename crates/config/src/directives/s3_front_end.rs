//! The directive `scalla.s3`: S3 for clients.

use std::path::PathBuf;

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use crate::effective::{BucketDirectory, Effective, S3FrontEnd, is_bucket};
use crate::report::{ConfigReport, ProblemKind};

/// The grammar.
pub(super) const GRAMMAR: &str = "{[credentials file] [domain name]… [bucket name path]…|off}";

/// Adds to earlier lines; `off` withdraws them.
pub(super) fn service(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let first = arguments.need("option")?;
    let is_off = first.text == "off";
    let mut values = if is_off { S3FrontEnd::default() } else { draft.effective.http.s3.value.clone() };
    let mut next = Some(first).filter(|_| !is_off);
    while let Some(token) = next {
        match token.text.as_str() {
            "credentials" => values.credentials = Some(PathBuf::from(arguments.path("credentials")?)),
            "domain" => {
                let name = arguments.need("domain")?;
                values.domains.push(domain(&name.text).ok_or_else(|| arguments.invalid(name, "domain"))?);
            }
            "bucket" => {
                let bucket = bucket(arguments)?;
                values.buckets.retain(|known| known.name != bucket.name);
                values.buckets.push(bucket);
            }
            _ => return Err(arguments.invalid(token, "option")),
        }
        next = arguments.next();
    }
    draft.effective.http.s3.set(values, arguments.origin());
    draft.finish(arguments);
    Ok(())
}

fn domain(text: &str) -> Option<String> {
    let name = text.to_ascii_lowercase();
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    name.split('.').all(is_label).then_some(name)
}

fn bucket(arguments: &mut Arguments<'_>) -> Result<BucketDirectory, DirectiveFault> {
    let name = arguments.need("bucket")?;
    if !is_bucket(&name.text) {
        return Err(arguments.invalid(name, "bucket"));
    }
    let token = arguments.need("path of the bucket")?;
    let path = token.text.trim_end_matches('/');
    let is_plain = |component: &str| !matches!(component, "" | "." | "..");
    match path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_plain)) {
        true => Ok(BucketDirectory { name: name.text.clone(), path: path.to_owned() }),
        false => Err(arguments.invalid(token, "path")),
    }
}

/// Reports values of S3 that have no effect.
pub(super) fn check(effective: &Effective, report: &mut ConfigReport) {
    let s3 = &effective.http.s3;
    if **s3 == S3FrontEnd::default() {
        return;
    }
    let mut warn = |what: String, allowed: &str| {
        report.add(ProblemKind::Doubtful, s3.origin.clone(), format!("scalla.s3: {what}"), allowed);
    };
    if s3.credentials.is_none() {
        warn("S3 is not served, because no file has the keys of users".to_owned(), "add credentials FILE");
        return;
    }
    if !effective.serves_http() {
        let what = "S3 is not served, because HTTP is not".to_owned();
        warn(what, "add xrd.protocol http *, or remove it");
        return;
    }
    for bucket in s3.buckets.iter().filter(|bucket| effective.storage.export_of(&bucket.path).is_none()) {
        let what = format!("the bucket '{}' is empty, because {} is not exported", bucket.name, bucket.path);
        warn(what, "name a directory of an export");
    }
    if effective.s3_buckets() == (Vec::new(), false) {
        let what = "there is no bucket, because each export has several components".to_owned();
        warn(what, "add bucket NAME PATH");
    }
}
