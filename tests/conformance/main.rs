//! cloud-init's behaviour, as data: the conformance vectors, one file of them per module.

mod ds_identify;
mod merge;
mod modules;
mod network;
mod openstack;
mod schema;
mod status;
mod userdata;
