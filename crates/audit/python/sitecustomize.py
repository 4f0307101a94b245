"""Marks epochs, batches, waits and call sites of a Python job for `feedline audit`, which puts this file's folder in front of
PYTHONPATH. Python runs it at the start of every process of the job.

It must not change what the job does: every wrapper calls the original with the same arguments, returns its result and lets
its exceptions through. It prints nothing, and an error in here becomes a note for feedline, never an exception in the job. It
needs Python 3.6.

Wrappers use no global functions: Python sets globals to None when it ends, and jobs take batches even then.
"""

import os
import sys
from functools import wraps

# Numbers of crates/audit/preload/src/layout.rs.
LOADER, EPOCH_BEGIN, WAIT_BEGIN, WAIT_END, EPOCH_END, WORKER, FETCH_BEGIN, FETCH_END = 1, 2, 3, 4, 5, 6, 7, 8
SITE, PREPARED, STEP, CHECKPOINT, MODULES, CONTEXT, CONTENT = 9, 10, 11, 12, 13, 14, 15
TEXT_SITE, TEXT_NOTE = 2, 3
PYTORCH, TENSORFLOW, KERAS = 1, 2, 3
START_METHODS = {"fork": 0, "spawn": 1, "forkserver": 2}

# The call site of an open is looked up for the first ones of a process, and then for one in this number.
SITES_AT_FIRST = 64
SITES_AFTERWARDS = 64
MOST_SITES = 4096

# Batches of an epoch that are compared with those of the epoch before, and values of a tensor or list that are hashed.
MOST_CONTENTS = 256
HASHED_VALUES = 32


def run_other_sitecustomize():
    """Runs the sitecustomize of the user or of the system, which this file hides."""
    import importlib.machinery
    import importlib.util

    own = os.path.dirname(os.path.abspath(__file__))
    others = [folder for folder in sys.path if os.path.abspath(folder or os.curdir) != own]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def connect():
    """The functions of the preload library, or None if this process is not observed."""
    if "FEEDLINE_AUDIT_RING" not in os.environ:
        return None
    try:
        import ctypes

        # PyDLL: other threads do not run meanwhile.
        library = ctypes.PyDLL(None)
        library.feedline_is_on.restype = ctypes.c_int
        if not library.feedline_is_on():
            return None
        mark, text = library.feedline_mark, library.feedline_text
        mark.argtypes = (ctypes.c_uint32, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
        mark.restype = None
        text.argtypes = (ctypes.c_uint32, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t)
        text.restype = None
        return Tools(mark, text)
    except Exception:
        return None


class Tools(object):
    """What the wrappers need. Nothing in here raises."""

    def __init__(self, raw_mark, raw_text):
        self.raw_mark = raw_mark
        self.raw_text = raw_text
        self.loaders = 0

    def mark(self, kind, a=0, b=0, c=0):
        try:
            self.raw_mark(kind, int(a), int(b), int(c))
        except Exception:
            pass

    def text(self, kind, number, message):
        try:
            encoded = message.encode("utf-8", "replace")
            self.raw_text(kind, number, encoded, len(encoded))
        except Exception:
            pass

    def failed(self, what, error):
        self.text(TEXT_NOTE, 0, "cannot mark %s: %s: %s" % (what, type(error).__name__, error))

    def quietly(self, compute, otherwise=None):
        """The result of a function that looks into a library."""
        try:
            return compute()
        except Exception:
            return otherwise

    def new_loader(self):
        self.loaders += 1
        return self.loaders - 1

    def hash(self, values):
        """A hash of plain values, others are left out. It is not 0, fits into a mark, and holds in one process only."""
        kept = []
        for value in values:
            if type(value) in (str, bytes):
                # Contents of a whole file would take long.
                kept.append((len(value), value[:256], value[-256:]))
            elif type(value) in (int, float, bool, type(None)):
                kept.append(value)
        return hash(tuple(kept)) & 0x7FFFFFFFFFFFFFFF | 1

    def some(self, values):
        """Some elements, spread evenly."""
        return values[:: max(1, len(values) // HASHED_VALUES)]

    def hash_of_leaf(self, leaf):
        """Hash of some values of a tensor in main memory, an array, or a list of plain values. 0: not known."""
        try:
            if type(leaf) in (list, tuple):
                return self.hash(self.some(leaf))
            # What is not contiguous would be copied, and what is on a device would be waited for.
            if hasattr(leaf, "is_contiguous"):
                if leaf.device.type != "cpu" or not leaf.is_contiguous():
                    return 0
                leaf = leaf.detach()
            elif not leaf.flags.c_contiguous:
                return 0
            return self.hash(self.some(leaf.reshape(-1)).tolist())
        except Exception:
            return 0

    def hashes_of_batch(self, batch):
        """Hashes of its first and of its last leaf."""
        leaves = [batch, batch]
        for at, which in enumerate((0, -1)):
            for _ in range(4):
                leaf = leaves[at]
                if hasattr(leaf, "values") and hasattr(leaf, "keys"):
                    leaf = list(leaf.values())
                if type(leaf) not in (list, tuple) or not leaf or type(leaf[which]) in (int, float, str, bytes):
                    break
                leaves[at] = leaf[which]
        return [self.hash_of_leaf(leaf) for leaf in leaves]

    def hash_of_object(self, thing):
        """Hash of the plain values of an object and of the data set that it wraps. What processes may share, such as
        tensors and mappings, is left out."""
        values = []
        for _ in range(3):
            known = getattr(thing, "__dict__", {})
            for name in sorted(known):
                value = known[name]
                is_list = type(value) in (list, tuple)
                values.extend([name, len(value), self.hash(self.some(value))] if is_list else [name, value])
            thing = known.get("dataset")
        return self.hash(values) if values else 0

    def count_samples(self, batch, expected):
        """Samples in a batch: `expected` if the batch has a dimension of that size, otherwise the first dimension of the
        first tensor or list in it. -1: not known."""
        try:
            found = []
            for _ in range(4):
                if hasattr(batch, "shape"):
                    found.extend(batch.shape[:1])
                    break
                if hasattr(batch, "values") and hasattr(batch, "keys"):
                    batch = next(iter(batch.values()))
                elif isinstance(batch, (list, tuple)) and batch:
                    found.insert(0, len(batch))
                    batch = batch[0]
                else:
                    break
            found = [int(size) for size in found if size is not None]
            return expected if expected in found else (found[-1] if found else -1)
        except Exception:
            return -1


# ---- PyTorch ----


class Pass(object):
    """A pass over a data loader."""

    def __init__(self, loader, epoch, batches, batch_size):
        self.loader = loader
        self.epoch = epoch
        # What the loader says, or -1.
        self.batches = batches
        # Samples in a full batch; 0 if the data set makes the batches itself.
        self.batch_size = batch_size
        self.taken = 0
        self.ended = False
        # The epoch in which the iterator was made.
        self.made = epoch


def describe_loader(tools, module, loader):
    """Marks a new data loader, and returns its number."""
    quietly = tools.quietly
    number = tools.new_loader()
    workers = quietly(lambda: loader.num_workers, 0)
    context = quietly(lambda: loader.multiprocessing_context)
    if context is None and workers:
        import multiprocessing

        context = multiprocessing
    method = quietly(lambda: START_METHODS[context.get_start_method()], 0) if workers else 0
    persistent = bool(quietly(lambda: loader.persistent_workers, False))
    iterable = quietly(lambda: loader._dataset_kind == module._DatasetKind.Iterable, False)
    pinned = bool(quietly(lambda: loader.pin_memory, False))
    about = min(workers, 0xFFFF) | persistent << 16 | iterable << 17 | method << 18 | pinned << 20 | PYTORCH << 24
    prefetch = quietly(lambda: loader.prefetch_factor) or 0
    tools.mark(LOADER, number, about, loader_batch_size(tools, loader) | prefetch << 32)
    return number


def loader_batch_size(tools, loader):
    size = tools.quietly(lambda: loader.batch_size)
    if size is None:
        size = tools.quietly(lambda: loader.batch_sampler.batch_size)
    return size if isinstance(size, int) else 0


def prepare_torch_loader(tools, module):
    mark, quietly = tools.mark, tools.quietly
    loader_class, iterator_class = module.DataLoader, module._BaseDataLoaderIter
    original_iter, original_next = loader_class.__iter__, iterator_class.__next__
    most_contents = MOST_CONTENTS

    def new_pass(loader):
        known = loader.__dict__
        if "_feedline_loader" not in known:
            known["_feedline_loader"] = describe_loader(tools, module, loader)
            known["_feedline_epoch"] = -1
        # An iterable data set remembers that its length was asked for, and warns later.
        iterable = quietly(lambda: loader._dataset_kind == module._DatasetKind.Iterable, True)
        batches = -1 if iterable else quietly(lambda: len(loader), -1)
        return Pass(known["_feedline_loader"], -1, batches, loader_batch_size(tools, loader))

    def begin(loader, which):
        loader.__dict__["_feedline_epoch"] += 1
        which.epoch, which.taken, which.ended = loader.__dict__["_feedline_epoch"], 0, False
        mark(EPOCH_BEGIN, which.loader, which.epoch, which.batches)
        gradients = quietly(lambda: int(module.torch.is_grad_enabled()), -1)
        mark(CONTEXT, which.loader, gradients, quietly(lambda: tools.hash_of_object(loader.dataset), 0))
        if quietly(lambda: loader.num_workers, 0):
            mark(MODULES, len(sys.modules), 0, 0)
        return which

    def attach(iterator, which):
        if which is not None and isinstance(iterator, iterator_class):
            iterator.__dict__["_feedline"] = which
            which.made = which.epoch
        return iterator

    @wraps(original_iter)
    def __iter__(self):
        # Of a subclass with an `__iter__` of its own, that one begins the passes.
        which = self.__dict__.get("_feedline_pass")
        if which is None:
            which = quietly(lambda: new_pass(self))
            if which is not None and getattr(type(self).__iter__, "_feedline_begins", False):
                self.__dict__["_feedline_pass"] = which
            elif which is not None:
                quietly(lambda: begin(self, which))
        return attach(original_iter(self), which)

    def wrap_own_iter(subclass):
        """A subclass whose `__iter__` may return the batches of an iterator that never ends."""
        own_iter = subclass.__dict__["__iter__"]

        @wraps(own_iter)
        def __iter__(self, *arguments, **named):
            def first():
                if self.__dict__.get("_feedline_pass") is None:
                    self.__dict__["_feedline_pass"] = new_pass(self)
                return begin(self, self.__dict__["_feedline_pass"])

            # Only the outermost class begins a pass.
            is_first = getattr(type(self), "__iter__", None) is __iter__
            which = quietly(first) if is_first else self.__dict__.get("_feedline_pass")
            return attach(own_iter(self, *arguments, **named), which)

        __iter__._feedline_begins = True
        subclass.__iter__ = __iter__

    def __init_subclass__(cls, **named):
        super(loader_class, cls).__init_subclass__(**named)
        if "__iter__" in cls.__dict__:
            quietly(lambda: wrap_own_iter(cls))

    def next_worker(iterator):
        """The worker that loads the next batch, or -1."""
        if not hasattr(iterator, "_task_info") or not getattr(iterator, "_in_order", True):
            return -1
        for number in range(iterator._rcvd_idx, iterator._send_idx):
            task = iterator._task_info[number]
            # Workers of an iterable data set that ended have tasks without data.
            if len(task) == 2 or iterator._workers_status[task[0]]:
                return task[0]
        return -1

    def end(which):
        if not which.ended:
            which.ended = True
            mark(EPOCH_END, which.loader, which.epoch, 0)

    @wraps(original_next)
    def __next__(self):
        which = self.__dict__.get("_feedline")
        if which is None:
            return original_next(self)
        mark(WAIT_BEGIN, which.loader, which.taken, quietly(lambda: next_worker(self), -1))
        try:
            data = original_next(self)
        except BaseException as error:
            mark(WAIT_END, which.loader, -1, -1)
            if isinstance(error, StopIteration):
                end(which)
            raise
        size = which.batch_size
        mark(WAIT_END, which.loader, which.taken, tools.count_samples(data, size) if size else -1)
        if which.taken < most_contents:
            mark(CONTENT, which.loader, *quietly(lambda: tools.hashes_of_batch(data), (0, 0)))
        which.taken += 1
        if which.taken == which.batches and which.made != which.epoch:
            # An iterator that goes on in the next epoch.
            end(which)
        return data

    loader_class.__iter__ = __iter__
    if "__init_subclass__" not in loader_class.__dict__:
        loader_class.__init_subclass__ = classmethod(__init_subclass__)
    iterator_class.__next__ = __next__


def prepare_torch_worker(tools, module):
    mark, quietly = tools.mark, tools.quietly
    original = module._worker_loop

    # wraps: a worker that is spawned finds the function by its name, and so gets the one of its own process.
    @wraps(original)
    def _worker_loop(*arguments, **named):
        def announce():
            code = original.__code__
            given = dict(zip(code.co_varnames[:code.co_argcount], arguments))
            given.update(named)
            mark(WORKER, given.get("worker_id", -1), given.get("num_workers", -1), 0)
            mark(MODULES, len(sys.modules), 1, 0)

        quietly(announce)
        return original(*arguments, **named)

    module._worker_loop = _worker_loop


def prepare_torch_fetch(tools, module):
    mark, quietly = tools.mark, tools.quietly

    def wrap(fetcher, is_iterable):
        original = fetcher.fetch

        def samples(self, index, data):
            if is_iterable:
                # It is asked for a full batch also at the end of its data.
                return tools.count_samples(data, len(index)) if self.auto_collation else -1
            return len(index) if isinstance(index, (list, tuple)) else 1

        @wraps(original)
        def fetch(self, possibly_batched_index):
            asked = quietly(lambda: len(possibly_batched_index), 1)
            mark(FETCH_BEGIN, asked, 0, 0)
            try:
                data = original(self, possibly_batched_index)
            except BaseException as error:
                mark(FETCH_END, 0, isinstance(error, StopIteration), 0)
                raise
            mark(FETCH_END, quietly(lambda: samples(self, possibly_batched_index, data), -1), 0, 0)
            return data

        fetcher.fetch = fetch

    wrap(module._IterableDatasetFetcher, True)
    wrap(module._MapDatasetFetcher, False)


def prepare_saves(*names):
    """Functions of a module that write a checkpoint. One that calls another counts once."""

    def prepare(tools, module):
        import threading

        mark = tools.mark
        running = threading.local()

        def wrap(original):
            @wraps(original)
            def save(*arguments, **named):
                if getattr(running, "yes", False):
                    return original(*arguments, **named)
                running.yes = True
                mark(CHECKPOINT, 1, 0, 0)
                try:
                    return original(*arguments, **named)
                finally:
                    mark(CHECKPOINT, 0, 0, 0)
                    running.yes = False

            return save

        for name in names:
            if hasattr(module, name):
                setattr(module, name, wrap(getattr(module, name)))

    return prepare


# ---- TensorFlow ----


def prepare_tensorflow(tools, module):
    """Iterators of loops in Python. Those of compiled functions take their batches unseen."""
    import weakref

    mark, quietly = tools.mark, tools.quietly
    iterator_class, pass_class = module.OwnedIterator, Pass
    original_init, original_next = iterator_class.__init__, iterator_class.__next__
    loaders = {}

    def batch_size(dataset):
        while dataset is not None:
            size = getattr(dataset, "_batch_size", None)
            if size is not None:
                return int(size)
            dataset = getattr(dataset, "_input_dataset", None)
        return 0

    shuffles = tensorflow_shuffles

    def begin(dataset):
        known = loaders.get(id(dataset))
        # The number may be that of another data set, which is gone.
        if known is None or known[1]() is not dataset:
            size = quietly(lambda: batch_size(dataset), 0)
            known = loaders[id(dataset)] = [tools.new_loader(), weakref.ref(dataset), -1, size]
            mark(LOADER, known[0], TENSORFLOW << 24 | quietly(lambda: shuffles(dataset), 0) << 21, size)
        known[2] += 1
        expected = quietly(lambda: int(dataset.cardinality()), -1)
        mark(EPOCH_BEGIN, known[0], known[2], max(expected, -1))
        return Pass(known[0], known[2], expected, known[3])

    def is_eager():
        from tensorflow.python.eager import context

        return context.executing_eagerly()

    @wraps(original_init)
    def __init__(self, dataset=None, *arguments, **named):
        original_init(self, dataset, *arguments, **named)
        if dataset is not None:
            # A pass begins with its first batch: Keras makes iterators that only compiled functions use.
            self._feedline = dataset

    @wraps(original_next)
    def __next__(self):
        which = getattr(self, "_feedline", None)
        if which is None or not quietly(is_eager, False):
            return original_next(self)
        if not isinstance(which, pass_class):
            which = self._feedline = quietly(lambda: begin(which))
            if which is None:
                return original_next(self)
        mark(WAIT_BEGIN, which.loader, which.taken, -1)
        try:
            data = original_next(self)
        except BaseException as error:
            mark(WAIT_END, which.loader, -1, -1)
            if isinstance(error, StopIteration) and not which.ended:
                which.ended = True
                mark(EPOCH_END, which.loader, which.epoch, 0)
            raise
        mark(WAIT_END, which.loader, which.taken, tools.count_samples(data, which.batch_size))
        which.taken += 1
        return data

    iterator_class.__init__ = __init__
    iterator_class.__next__ = __next__


def tensorflow_shuffles(dataset):
    """1 if elements of a data set are shuffled anew in each epoch, in memory."""
    found = [dataset]
    while found:
        dataset = found.pop()
        if type(dataset).__name__ == "_ShuffleDataset" and dataset._reshuffle_each_iteration is not False:
            return 1
        found.extend(dataset._inputs())
    return 0


def prepare_keras(tools, module):
    """Epochs of `fit` from a callback, and its steps from the function that takes a batch and trains. Not from callbacks:
    one for the end of a batch makes Keras wait for the results of each step."""
    mark, quietly = tools.mark, tools.quietly
    shuffles = tensorflow_shuffles
    trainer = getattr(module, "TensorFlowTrainer", None) or module.Model
    original_fit, original_make = trainer.fit, trainer.make_train_function
    # fit takes the list by position as well: (x, y, batch_size, epochs, verbose, callbacks, ...).
    place = 5
    # Passes of the fits that run.
    running = []

    def epoch_callback(which):
        class Epochs(module.callbacks_module.Callback):
            _supports_tf_logs = True
            async_safe = True

            def on_epoch_begin(self, epoch, logs=None):
                which.epoch, which.taken = epoch, 0
                steps = quietly(lambda: self.params["steps"])
                mark(EPOCH_BEGIN, which.loader, epoch, -1 if steps is None else steps)

            def on_epoch_end(self, epoch, logs=None):
                mark(EPOCH_END, which.loader, epoch, 0)

        return Epochs()

    def with_callback(arguments, named, which):
        given = arguments[place] if len(arguments) > place else named.get("callbacks")
        if given is None:
            given = []
        elif isinstance(given, module.callbacks_module.CallbackList):
            # It belongs to the user, and may serve several fits.
            return arguments, named
        elif not isinstance(given, (list, tuple)):
            given = [given]
        given = list(given) + [epoch_callback(which)]
        if len(arguments) > place:
            return arguments[:place] + (given,) + arguments[place + 1:], named
        return arguments, dict(named, callbacks=given)

    def start(arguments, named):
        batch = named.get("batch_size") or (arguments[2] if len(arguments) > 2 else None) or 0
        which = Pass(tools.new_loader(), 0, -1, 0)
        data = arguments[0] if arguments else named.get("x")
        mark(LOADER, which.loader, KERAS << 24 | quietly(lambda: shuffles(data), 0) << 21, batch)
        return (which,) + with_callback(arguments, named, which)

    @wraps(original_fit)
    def fit(self, *arguments, **named):
        started = quietly(lambda: start(arguments, named))
        if started is None:
            return original_fit(self, *arguments, **named)
        running.append(started[0])
        try:
            return original_fit(self, *started[1], **started[2])
        finally:
            running.pop()

    def with_steps(function):
        @wraps(function)
        def train_function(*arguments, **named):
            which = running[-1] if running else None
            if which is None:
                return function(*arguments, **named)
            step = which.taken
            which.taken += 1
            mark(STEP, which.loader, step, 1)
            try:
                return function(*arguments, **named)
            finally:
                mark(STEP, which.loader, step, 0)

        train_function._feedline = True
        return train_function

    @wraps(original_make)
    def make_train_function(self, *arguments, **named):
        result = original_make(self, *arguments, **named)

        def change():
            if not getattr(self.train_function, "_feedline", False):
                self.train_function = with_steps(self.train_function)
            return None if result is None else self.train_function

        return quietly(change, result)

    trainer.fit = fit
    trainer.make_train_function = make_train_function


# ---- Waiting for the modules ----

# Number in the mark, and what to do.
PREPARE = {
    "torch.utils.data.dataloader": (1, prepare_torch_loader),
    "torch.utils.data._utils.worker": (2, prepare_torch_worker),
    "torch.utils.data._utils.fetch": (3, prepare_torch_fetch),
    "tensorflow.python.data.ops.iterator_ops": (4, prepare_tensorflow),
    "keras.src.backend.tensorflow.trainer": (5, prepare_keras),
    "keras.src.engine.training": (5, prepare_keras),
    "keras.engine.training": (5, prepare_keras),
    "torch.serialization": (6, prepare_saves("save")),
    "torch.distributed.checkpoint.state_dict_saver": (6, prepare_saves("save", "save_state_dict")),
    "safetensors.torch": (6, prepare_saves("save_file")),
    "keras.src.saving.saving_lib": (6, prepare_saves("save_model", "save_weights_only")),
}


def wait_for_modules(tools):
    """Changes each module of `PREPARE` right after it was executed."""
    prepared = dict(PREPARE)

    def prepare(name, module):
        number, change = prepared[name]
        try:
            change(tools, module)
            tools.mark(PREPARED, number, 1, 0)
        except Exception as error:
            tools.mark(PREPARED, number, 0, 0)
            tools.failed(name, error)

    def wait(name, spec):
        loader = spec.loader
        execute = loader.exec_module

        def exec_module(module):
            execute(module)
            prepare(name, module)

        loader.exec_module = exec_module

    class Finder(object):
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name not in prepared:
                return None
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec = find(name, path, target) if find and finder is not Finder else None
                if spec is not None:
                    tools.quietly(lambda: wait(name, spec))
                    return spec
            return None

    sys.meta_path.insert(0, Finder)
    for name in prepared:
        if name in sys.modules:
            prepare(name, sys.modules[name])


# ---- Call sites ----


def watch_opens(tools):
    """Marks the call sites of opens: the first frame that is neither Python's own nor that of an installed package."""
    import sysconfig

    mark, text = tools.mark, tools.text
    skipped = [os.path.abspath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
    skipped = tuple(folder + os.sep for folder in set(skipped))
    packages = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
    own = os.path.abspath(__file__)
    get_frame, absolute = sys._getframe, os.path.abspath
    judged, sites = {}, {}
    opens = [0]

    def is_foreign(path):
        known = judged.get(path)
        if known is None:
            whole = path if path.startswith("<") else absolute(path)
            known = whole.startswith(skipped) or any(part in whole for part in packages)
            known = judged[path] = known or whole == own or path.startswith("<frozen")
        return known

    def mark_site():
        frame = get_frame(2)
        # Modules are imported by frames of importlib.
        if frame.f_code.co_filename.startswith("<frozen"):
            opens[0] -= 1
            return
        while frame is not None and is_foreign(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None:
            return
        key = (frame.f_code, frame.f_lineno)
        site = sites.get(key)
        if site is None:
            if len(sites) >= MOST_SITES:
                return
            site = sites[key] = len(sites) + 1
            text(TEXT_SITE, site, "%s:%d in %s" % (key[0].co_filename, key[1], key[0].co_name))
        mark(SITE, site, 0, 0)

    def watch(event, arguments):
        if event != "open":
            return
        opens[0] += 1
        if opens[0] <= SITES_AT_FIRST or opens[0] % SITES_AFTERWARDS == 0:
            try:
                mark_site()
            except Exception:
                pass

    def forget():
        # Numbers of sites hold in one process.
        sites.clear()
        opens[0] = 0

    if hasattr(sys, "addaudithook"):
        os.register_at_fork(after_in_child=forget)
        sys.addaudithook(watch)


def main():
    tools = connect()
    if tools is None:
        return
    for what in (wait_for_modules, watch_opens):
        try:
            what(tools)
        except Exception as error:
            tools.failed(what.__name__, error)


main()
run_other_sitecustomize()
