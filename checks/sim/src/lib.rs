//! The cluster on virtual time: the machines of `cluster`, a network that loses, delays and splits, and no real second.
//!
//! | file | what it holds |
//! |---|---|
//! | `world` | events in their order |
//! | `network` | connections and their faults |
//! | `counts`, `occurred` | what happened, counted; which faults really befell the worlds of many seeds |
//! | `host` | what runs on a host, its clock, what it remembers |
//! | `own` | a process of ours: the node and the resolver, tied together as the server ties them |
//! | `desk` | what a parent of ours finds files with |
//! | `legacy`, `hearsay` | a model of real nodes: their pauses and what ends them, and how they find files |
//! | `flood` | somebody hostile |
//! | `stranger`, `orders` | redirectors and others who order changes of names: without permission no name changes |
//! | `talk`, `disk` | messages about files, and files |
//! | `client`, `service` | what clients do, and whether what they are told is right |
//! | `shape` | the tree that came out, and whether it is one |
//! | `troubles` | what befalls one host: it stands still, its disk hangs, it does not hear one other, orders |
//! | `faults`, `errands` | a bad minute, what clients do in it, and whether all find back and everything is found again |
//! | `formation`, `location` | how fast a tree forms, how fast it finds files, and what that costs |
//! | `placement` | creators and readers of new files at several managers: no file is ever created twice |
//! | `windows` | locations that expire or are evicted while files are made and removed |
//! | `crowds` | thousands of requests that wait: no event looks at more than a fixed number of them |
//! | `queues` | work queues in front of the machines: bounded, fair to clients, and names are right after an overflow |
//! | `lot` | chance that can be replayed |

pub mod client;
pub mod counts;
pub mod crowds;
mod desk;
pub mod disk;
pub mod errands;
pub mod faults;
pub mod flood;
pub mod formation;
mod hearsay;
pub mod host;
pub mod legacy;
pub mod location;
pub mod lot;
mod network;
pub mod occurred;
pub mod orders;
pub mod own;
pub mod placement;
pub mod queues;
pub mod service;
pub mod shape;
mod stranger;
pub mod talk;
pub mod troubles;
pub mod windows;
pub mod world;
