//! cloud-init's behaviour, as data: each case of the conformance vectors is a test, named FILE: CASE.

mod cases;
mod datasources;
mod ds_identify;
mod jinja;
mod merge;
mod modules;
mod network;
mod openstack;
mod schema;
mod status;
mod userdata;

fn main() {
    let trials = [
        cases::trials(),
        datasources::trials(),
        ds_identify::trials(),
        jinja::trials(),
        merge::trials(),
        modules::trials(),
        network::trials(),
        openstack::trials(),
        schema::trials(),
        status::trials(),
        userdata::trials(),
    ];
    let mut arguments = libtest_mimic::Arguments::from_args();
    // There are thousands: without a filter, as with --quiet.
    arguments.quiet |= arguments.filter.is_none() && arguments.format.is_none() && !arguments.list;
    let conclusion = libtest_mimic::run(&arguments, trials.into_iter().flatten().collect());
    cases::print_skipped();
    conclusion.exit();
}
