//! The components that serve clients, and the dispatch of each operation of [`vfs`] to one of them.
//!
//! All components of one set access the storage with the same rights. With multi-user there is one
//! set for the server itself and one for each account, so that no listing, checksum, or lookup of one
//! account is given to another one.

use crate::attribute::AttributeRequests;
use crate::config::Config;
use crate::directory_reading::ListingServices;
use crate::exports::ExportTable;
use crate::file_services::FileServices;
use crate::listing::Listings;
use crate::name_operations::{NameOperations, ParentBound};
use crate::open::OpenServices;
use crate::prepare::{PrepareRequests, Prepares};
use crate::queries::{Locator, QueryServices};
use crate::scan::Scans;
use crate::stat::StatService;
use crate::{attribute, checksum, listing, name_operations, open, prepare, queries, scan, stat};
use base::ErrorKind;
use std::sync::{Arc, OnceLock};
use storage::{ExistingName, StorageUser};
use vfs::{Answer, Caller, Operation, ReplyTo, Started};

/// The components that serve clients with the same rights.
pub(crate) struct ClientOperations {
    pub(crate) opener: Arc<OpenServices>,
    changes: Arc<NameOperations>,
    stats: Arc<StatService>,
    scans: Arc<Scans>,
    listings: Arc<Listings>,
    attributes: Arc<AttributeRequests>,
    inquiries: Arc<QueryServices>,
    prepares: Arc<PrepareRequests>,
    config: Arc<Config>,
}

impl ClientOperations {
    pub(crate) fn new(
        config: Config,
        exports: &Arc<ExportTable>,
        services: Arc<FileServices>,
        locator: Option<Arc<dyn Locator>>,
    ) -> Self {
        let opener = OpenServices {
            creation_modes: config.creation_modes(),
            delay_max: config.delay_max,
            exports: exports.clone(),
            third_party: Arc::default(),
            services: services.clone(),
        };
        let inquiries = QueryServices {
            exports: exports.clone(),
            backend: services.backend.clone(),
            locator,
            own_address: config.own_address.clone(),
        };
        let ids = Prepares::new(&config.own_address.name, services.clock.as_ref());
        let prepares = PrepareRequests::new(ids, exports.clone(), services.backend.clone());
        let scans = Scans::new(listing_services(&services));
        Self::with(Arc::new(config), opener, inquiries, prepares, scans)
    }

    /// Returns the components that serve the clients of an account; `None` if the storage cannot act
    /// for users.
    pub(crate) fn for_user(&self, user: &Arc<StorageUser>) -> Option<Self> {
        let opener = self.opener.for_user(user)?;
        let backend = opener.services.backend.clone();
        let inquiries = self.inquiries.with_backend(backend.clone());
        let prepares = self.prepares.with_backend(backend);
        let scans = self.scans.with_services(listing_services(&opener.services));
        Some(Self::with(self.config.clone(), opener, inquiries, prepares, scans))
    }

    fn with(
        config: Arc<Config>,
        opener: OpenServices,
        inquiries: QueryServices,
        prepares: PrepareRequests,
        scans: Arc<Scans>,
    ) -> Self {
        let (services, exports) = (&opener.services, &opener.exports);
        let changes = NameOperations {
            creation_modes: opener.creation_modes,
            exports: exports.clone(),
            backend: services.backend.clone(),
            open_table: services.open_table.clone(),
            persist: services.persist.clone(),
            checkpoints: services.checkpoints.clone(),
            checksums: services.checksums.clone(),
            wholeness: services.wholeness.clone(),
            events: services.events.clone(),
        };
        let stats = StatService {
            exports: exports.clone(),
            backend: services.backend.clone(),
            users: services.users.clone(),
            wholeness: services.wholeness.clone(),
        };
        let listings =
            Listings { exports: exports.clone(), checksums: config.checksums.clone(), scans: scans.clone() };
        let attributes = AttributeRequests {
            limits: config.attributes,
            exports: exports.clone(),
            backend: services.backend.clone(),
        };
        Self {
            changes: Arc::new(changes),
            stats: Arc::new(stats),
            listings: Arc::new(listings),
            attributes: Arc::new(attributes),
            inquiries: Arc::new(inquiries),
            prepares: Arc::new(prepares),
            opener: Arc::new(opener),
            scans,
            config,
        }
    }

    /// Returns the components that open files use.
    pub(crate) fn services(&self) -> &Arc<FileServices> {
        &self.opener.services
    }

    /// Returns the third-party copies, which are the same for all accounts.
    pub(crate) fn third_party(&self) -> &OnceLock<Arc<crate::third_party::ThirdPartyCopies>> {
        &self.opener.third_party
    }

    /// Returns the ids of prepare requests.
    pub(crate) fn prepare_ids(&self) -> &Prepares {
        self.prepares.ids()
    }

    /// Returns the number of directories that are being read or will be.
    pub(crate) fn scans(&self) -> usize {
        self.scans.count()
    }

    /// Starts listings that have waited too long for others. Never blocks.
    pub(crate) fn tick(&self) {
        scan::tick(&self.scans);
    }

    /// Starts an operation; never blocks.
    pub(crate) fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        match operation {
            Operation::Open(target, request) => open::start(&self.opener, caller, target, *request, reply),
            Operation::Stat(target) => stat::start(&self.stats, target, reply),
            Operation::StatMany(targets) => stat::stat_many(&self.stats, caller, &targets, reply),
            Operation::StatSpace(target) => queries::stat_space(&self.inquiries, target, reply),
            Operation::List(target, detail) => listing::start(&self.listings, caller, target, detail, reply),
            Operation::ListMore(rest) => listing::more(caller, rest, reply),
            Operation::MakeDirectory { target, mode, parents, existing_parent } => {
                let parents = parents.then_some(ParentBound(existing_parent));
                name_operations::make_directory(&self.changes, target, mode, parents, reply)
            }
            Operation::RemoveDirectory(target) => {
                name_operations::remove_directory(&self.changes, target, reply)
            }
            Operation::Remove(target) => name_operations::remove(&self.changes, target, reply),
            Operation::Rename { from, to, replace, existing_parent } => {
                let existing = if replace { ExistingName::Replace } else { ExistingName::Keep };
                let parents = ParentBound(existing_parent);
                name_operations::rename(&self.changes, from, (to, existing), parents, reply)
            }
            Operation::ChangeMode { target, mode } => {
                name_operations::set_mode(&self.changes, target, mode, reply)
            }
            Operation::Truncate { target, size } => {
                name_operations::truncate(&self.changes, target, size, reply)
            }
            Operation::Attributes(target, work) => attribute::start(&self.attributes, target, work, reply),
            Operation::Locate(target, options) => {
                queries::locate(&self.inquiries, caller, target, options, reply)
            }
            Operation::Checksum(target) => checksum::start(&self.services().checksums, caller, target, reply),
            Operation::CancelChecksum(target) => checksum::cancel(&self.services().checksums, &target),
            Operation::QueryAttributes(target) => queries::query_attributes(&self.inquiries, target, reply),
            Operation::QuerySpace(target) => queries::query_space(&self.inquiries, target, reply),
            Operation::Prepare(request, targets) => {
                prepare::start(&self.prepares, caller, request, targets, reply)
            }
            Operation::CancelPrepare { id } => Started::Done(prepare::cancel(&self.prepares, &id).into()),
            Operation::QueryPrepare { id, targets } => {
                prepare::query(&self.prepares, caller, &id, targets, reply)
            }
            Operation::QueryOpaque { code, argument } => {
                Started::Done(queries::query_opaque(&self.inquiries, code, &argument))
            }
            Operation::Tape(_) => {
                Started::Done(Answer::error(ErrorKind::Unsupported, "this server stages no files"))
            }
            Operation::IssueMacaroon(..) => {
                let text = "this server issues no macaroons, because they do not count";
                Started::Done(Answer::error(ErrorKind::Unsupported, text))
            }
            Operation::Cache(..) => {
                Started::Done(Answer::error(ErrorKind::ArgInvalid, "invalid set parameter"))
            }
        }
    }
}

fn listing_services(services: &FileServices) -> ListingServices {
    ListingServices {
        backend: services.backend.clone(),
        clock: services.clock.clone(),
        users: services.users.clone(),
        open_table: services.open_table.clone(),
        wholeness: services.wholeness.clone(),
    }
}
