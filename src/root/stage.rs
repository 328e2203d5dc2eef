//! The stages of a boot, and the names that each has outside: one table.

/// A stage of the boot. They run in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Finds the datasource and writes files: in the initramfs, or before the network in the real root.
    Local,
    /// Does what needs the running system or the network. Other services wait for it.
    Network,
    Config,
    Final,
}

/// The names of a stage, most of which programs outside look for.
struct Names {
    /// In `modules --mode`, in the mapping `output` and in a plan.
    name: &'static str,
    /// In status.json.
    status: &'static str,
    /// In the log's events.
    event: &'static str,
    /// What the event says that the stage does.
    description: &'static str,
    /// In the line that begins the stage.
    action: &'static str,
    unit: &'static str,
    /// The configuration key of its list of modules.
    list: &'static str,
}

/// The names, in the order of the stages.
static NAMES: [Names; 4] = [
    Names {
        name: "local",
        status: "init-local",
        event: "init-local",
        description: "provisioning the root",
        action: "init-local",
        unit: "cloud-init-local.service",
        list: "",
    },
    Names {
        name: "init",
        status: "init",
        event: "init-network",
        description: "running what needs the network",
        action: "init",
        unit: "cloud-init-network.service",
        list: "cloud_init_modules",
    },
    Names {
        name: "config",
        status: "modules-config",
        event: "modules-config",
        description: "running modules for config",
        action: "modules:config",
        unit: "cloud-config.service",
        list: "cloud_config_modules",
    },
    Names {
        name: "final",
        status: "modules-final",
        event: "modules-final",
        description: "running modules for final",
        action: "modules:final",
        unit: "cloud-final.service",
        list: "cloud_final_modules",
    },
];

impl Stage {
    /// All stages, in their order.
    pub const ALL: [Stage; 4] = [Stage::Local, Stage::Network, Stage::Config, Stage::Final];
    /// The stages that have a list of modules, in their order.
    pub const WITH_MODULES: [Stage; 3] = [Stage::Network, Stage::Config, Stage::Final];

    fn names(self) -> &'static Names {
        &NAMES[self as usize]
    }

    /// The name in `modules --mode`, in the mapping `output` and in a plan.
    pub fn name(self) -> &'static str {
        self.names().name
    }

    /// The name in status.json.
    pub fn status_name(self) -> &'static str {
        self.names().status
    }

    /// The name and the description of its event in the log.
    pub fn event(self) -> (&'static str, &'static str) {
        (self.names().event, self.names().description)
    }

    /// The name in the line that begins the stage in the log and on the console.
    pub fn action(self) -> &'static str {
        self.names().action
    }

    /// The unit that runs it.
    pub fn unit(self) -> &'static str {
        self.names().unit
    }

    /// The configuration key of its list of modules. Empty for the local stage, which has none.
    pub fn list_key(self) -> &'static str {
        self.names().list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_order_of_stages() {
        assert_eq!(Stage::ALL.map(Stage::name), ["local", "init", "config", "final"]);
    }
}
