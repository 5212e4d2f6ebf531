//! Random chains, whose verdict is compared with that of `openssl verify`.
//!
//! `GRID_CHAINS=5000 cargo test -p scalla-auth openssl_has_the_same_verdict` compares more of them, and
//! `GRID_SEED` repeats a run. Decision 038 explains the differences that are expected.

use super::settings::{AuthorityLevel, ChainRole, CrlLevel, GridTrustSettings};
use super::test_certificates::{NOW, TestDirectory, now, openssl, pem_of};
use super::test_chains::{AUTHORITIES_MAX, Chain, ChainPlan, Defect, PROXIES_MAX, TestKeys, build};
use super::trust::GridTrust;
use std::collections::BTreeMap;

/// A sequence of random numbers (SplitMix64).
struct RandomNumbers(u64);

impl RandomNumbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(limit).unwrap()).unwrap()
    }

    fn is_one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// Returns a path length that is missing, too small or sufficient.
    fn limit(&mut self) -> Option<u32> {
        [None, None, None, None, Some(0), Some(1), Some(2), Some(9)][self.below(8)]
    }
}

fn random_plan(numbers: &mut RandomNumbers) -> ChainPlan {
    let defect =
        if numbers.is_one_in(3) { Defect::None } else { Defect::ALL[numbers.below(Defect::ALL.len())] };
    let authorities = (1 + usize::from(defect.needs_intermediate())).max(1 + numbers.below(AUTHORITIES_MAX));
    let proxies = usize::from(defect.needs_proxy()).max(numbers.below(PROXIES_MAX));
    ChainPlan {
        defect,
        authorities: (0..authorities).map(|_| numbers.limit()).collect(),
        proxies: (0..proxies).map(|_| numbers.limit()).collect(),
        limited: (0..proxies).map(|_| numbers.is_one_in(4)).collect(),
        has_key_usage: !numbers.is_one_in(3),
        has_lists: defect.needs_lists() || numbers.is_one_in(2),
        has_local_intermediates: numbers.is_one_in(3),
        has_rsa: numbers.is_one_in(4),
    }
}

/// Returns the verdict of OpenSSL: nothing, or the text of its error.
fn verdict_of_openssl(plan: &ChainPlan, chain: &Chain, directory: &TestDirectory) -> Result<(), String> {
    let (leaf, others) = chain.split_first().unwrap();
    directory.put("leaf.pem", pem_of(leaf));
    directory.put("others.pem", others.iter().map(|one| pem_of(one)).collect::<String>());
    let path = |file: &str| directory.0.join(file).display().to_string();
    let (place, time, untrusted, leaf) =
        (directory.0.display().to_string(), NOW.to_string(), path("others.pem"), path("leaf.pem"));
    let mut arguments = vec!["verify", "-allow_proxy_certs", "-purpose", "sslclient", "-auth_level", "2"];
    arguments.extend(["-attime", &time, "-no-CAfile", "-no-CAstore", "-CApath", &place]);
    if !others.is_empty() {
        arguments.extend(["-untrusted", &untrusted]);
    }
    if plan.has_lists {
        arguments.push("-crl_check_all");
    }
    arguments.push(&leaf);
    let text = openssl(&arguments, b"");
    if text.ends_with(": OK\n") { Ok(()) } else { Err(text) }
}

/// Returns the reason why the verdicts may differ: the one of this crate is `ours`.
fn explanation(
    plan: &ChainPlan,
    ours: &Result<(), String>,
    theirs: &Result<(), String>,
) -> Option<&'static str> {
    match (ours, theirs) {
        // OpenSSL adds the path lengths of proxies to those of authorities.
        (Err(reason), Ok(())) if reason.contains("path length") || reason.contains("PathLen") => {
            let has_limit = plan.proxies.iter().any(Option::is_some);
            has_limit.then_some("path lengths of proxies do not extend those of authorities")
        }
        (Err(_), Ok(())) => match plan.defect {
            Defect::AuthorityAsEndEntity => Some("authorities do not log in"),
            Defect::ProxyMalformed => Some("bytes after the value of an extension are not ignored"),
            Defect::AuthorityWithoutConstraints if plan.authorities.len() == 1 => {
                Some("roots need basicConstraints")
            }
            Defect::ProxyNotCritical => Some("proxyCertInfo must be critical"),
            Defect::ProxyIndependent => Some("independent proxies have no rights here"),
            Defect::ProxyUnknownLanguage => Some("unknown languages of policies are refused"),
            Defect::ProxyWithoutSignatures => Some("the leaf must be allowed to sign"),
            _ => None,
        },
        (Ok(()), Err(text)) => {
            // OpenSSL adds the path length of the leaf to the number of proxies below its issuer.
            let is_limit = text.contains("proxy path length constraint exceeded");
            match plan.defect {
                _ if is_limit && has_growing_limit(plan) => Some("path lengths of proxies need not decrease"),
                Defect::ProxyDraft => Some("the draft of proxyCertInfo is accepted"),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Reports whether a proxy has a path length that is not smaller than that of a proxy above it.
fn has_growing_limit(plan: &ChainPlan) -> bool {
    let limits: Vec<(usize, u32)> =
        plan.proxies.iter().enumerate().filter_map(|(index, limit)| Some((index, (*limit)?))).collect();
    limits.windows(2).any(|pair| {
        let distance = u32::try_from(pair[1].0 - pair[0].0).unwrap();
        pair[1].1 + distance > pair[0].1
    })
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn openssl_has_the_same_verdict() {
    let count = setting("GRID_CHAINS").unwrap_or(300);
    let seed = setting("GRID_SEED").unwrap_or_else(now_as_seed);
    let (keys, mut numbers) = (TestKeys::new(), RandomNumbers(seed));
    let (mut accepted, mut differences) = (0_u64, BTreeMap::<&str, u64>::new());
    let mut unexplained = Vec::new();
    for number in 0..count {
        let plan = random_plan(&mut numbers);
        let directory = TestDirectory::new("oracle");
        let chain = build(&plan, &keys, &directory);
        let trust = GridTrust::open(GridTrustSettings {
            directories: vec![directory.0.clone()],
            crl_level: if plan.has_lists { CrlLevel::Require } else { CrlLevel::Ignore },
            authority_level: AuthorityLevel::Full,
            ..GridTrustSettings::default()
        });
        let verified = trust.unwrap().verify(&chain, ChainRole::Client, now());
        if let (Ok(verified), Defect::None) = (&verified, plan.defect) {
            assert_eq!(verified.is_limited(), plan.limited.contains(&true), "{plan:?}");
        }
        let ours = verified.map(drop).map_err(|fault| fault.to_string());
        let theirs = verdict_of_openssl(&plan, &chain, &directory);
        accepted += u64::from(ours.is_ok());
        if ours.is_ok() != theirs.is_ok() {
            match explanation(&plan, &ours, &theirs) {
                Some(reason) => *differences.entry(reason).or_default() += 1,
                None => {
                    unexplained.push(format!("chain {number}: {plan:?}\nours: {ours:?}\nopenssl: {theirs:?}"))
                }
            }
        }
    }
    println!("{count} chains, {accepted} accepted, seed {seed}; expected differences: {differences:?}");
    assert!(unexplained.is_empty(), "seed {seed}:\n{}", unexplained.join("\n"));
    assert!(accepted > count / 20, "only {accepted} of {count} chains are valid");
}

fn now_as_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |since| since.as_secs())
}
