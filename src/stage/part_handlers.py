import base64, importlib.util, json, os, sys, traceback, types

# Handlers may print: what this program says goes to the first standard output, theirs to standard error.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
job = json.load(sys.stdin)
problems = []
sys.path[:0] = job["folders"]


class Cloud:
    def get_instance_id(self):
        return job["instance_id"]


def stub(name, **members):
    module = sys.modules[name] = types.ModuleType(name)
    vars(module).update(members)
    return module


# Handlers import these of cloud-init's modules, which need not be installed.
try:
    there = importlib.util.find_spec("cloudinit.cloud")
except ImportError:
    there = None
if not there:
    settings = stub("cloudinit.settings", PER_ALWAYS="always", PER_INSTANCE="once-per-instance", PER_ONCE="once")
    handlers, cloud = stub("cloudinit.handlers"), stub("cloudinit.cloud", Cloud=Cloud)
    stub("cloudinit", __path__=[], cloud=cloud, handlers=handlers, settings=settings)


def failed(what):
    traceback.print_exc()
    problems.append("%s: %s" % (what, sys.exc_info()[0].__name__))


def load(handler):
    module = types.ModuleType(handler["name"])
    module.__file__ = handler["path"]
    code = base64.b64decode(handler["code"])
    exec(compile(code, handler["path"], "exec"), module.__dict__)
    for name in ("list_types", "handle_part"):
        getattr(module, name)
    module.frequency = getattr(module, "frequency", "once-per-instance")
    try:
        module.handler_version = int(getattr(module, "handler_version", 1))
    except (TypeError, ValueError):
        module.handler_version = 1
    sys.modules[handler["name"]] = module
    return module


def call(module, kind, filename, payload, headers):
    if module.frequency != "always" and (job["frequency"], module.frequency) != ("once-per-instance",) * 2:
        return
    arguments = [cloud, kind, filename, payload, job["frequency"], headers]
    counts = {1: 4, 2: 5, 3: 6}
    try:
        module.handle_part(*arguments[: counts[module.handler_version]])
    except BaseException:
        failed("part-handler %s: %s" % (module.__name__, filename or kind))


def mark(module, kind):
    call(module, kind, None, None, {"Content-Type": kind})


cloud = Cloud()
for source in job["sources"]:
    handlers, started = {}, []

    def register(handler, first):
        try:
            module = load(handler)
            kinds = list(module.list_types())
            if first:
                mark(module, "__begin__")
            handlers.update((kind, module) for kind in kinds)
            if first:
                started.append(module)
        except BaseException:
            failed("part-handler %s" % handler["name"])

    for handler in job["handlers"]:
        register(handler, False)
    for module in handlers.values():
        if module not in started:
            mark(module, "__begin__")
            started.append(module)
    for part in source["parts"]:
        if "code" in part:
            register(part, True)
            continue
        payload = base64.b64decode(part["payload"])
        if part["type"].startswith("text/"):
            payload = payload.decode("utf-8", "surrogateescape")
        if part["type"] in handlers:
            call(handlers[part["type"]], part["type"], part["filename"], payload, part["headers"])
        elif not part["known"] and payload:
            problems.append("%s: %s: no part-handler takes the type %s" % (source["name"], part["filename"], part["type"]))
    for module in started:
        mark(module, "__end__")

json.dump(problems, answers)
answers.close()
