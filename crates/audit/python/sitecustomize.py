"""Marks epochs, batches, waits and call sites of a Python job for `feedline audit`, which puts this file's folder in front of
PYTHONPATH. Python runs it at the start of every process of the job.

It must not change what the job does: every wrapper calls the original with the same arguments, returns its result and lets
its exceptions through. An error in here becomes a note for feedline, never an exception in the job. It needs Python 3.6.
"""

import os
import sys

# Numbers of crates/audit/preload/src/layout.rs.
LOADER, EPOCH_BEGIN, WAIT_BEGIN, WAIT_END, EPOCH_END, WORKER, FETCH_BEGIN, FETCH_END = 1, 2, 3, 4, 5, 6, 7, 8
SITE, PREPARED, STEP, CHECKPOINT, MODULES = 9, 10, 11, 12, 13
TEXT_SITE, TEXT_NOTE = 2, 3
PYTORCH, TENSORFLOW, KERAS = 1, 2, 3
START_METHODS = {"fork": 0, "spawn": 1, "forkserver": 2}

# The call site of an open is looked up for the first ones, and then for one in this number.
SITES_AT_FIRST = 64
SITES_AFTERWARDS = 64


def run_other_sitecustomize():
    """Runs the sitecustomize of the user or of the system, which this file hides."""
    own = os.path.dirname(os.path.abspath(__file__))
    for folder in sys.path:
        path = os.path.join(folder or os.curdir, "sitecustomize.py")
        if os.path.abspath(folder or os.curdir) == own or not os.path.isfile(path):
            continue
        import importlib.util

        spec = importlib.util.spec_from_file_location("sitecustomize", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)
        return


def connect():
    """The functions of the preload library, or None if this process is not observed."""
    if "FEEDLINE_AUDIT_RING" not in os.environ:
        return None
    try:
        import ctypes

        library = ctypes.CDLL(None)
        library.feedline_is_on.restype = ctypes.c_int
        if not library.feedline_is_on():
            return None
        mark, text = library.feedline_mark, library.feedline_text
        mark.argtypes = (ctypes.c_uint32, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
        mark.restype = None
        text.argtypes = (ctypes.c_uint32, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t)
        text.restype = None
        return mark, text
    except Exception:
        return None


def start(raw_mark, raw_text):
    """Prepares this process. The names in here are out of reach of the job."""
    import functools
    import importlib.abc

    def mark(kind, a=0, b=0, c=0):
        try:
            raw_mark(kind, int(a), int(b), int(c))
        except Exception:
            pass

    def text(kind, number, message):
        try:
            encoded = message.encode("utf-8", "replace")
            raw_text(kind, number, encoded, len(encoded))
        except Exception:
            pass

    def note(message):
        text(TEXT_NOTE, 0, message)

    def quietly(compute, otherwise):
        """The result of a function that looks into a library."""
        try:
            return compute()
        except Exception:
            return otherwise

    def count_samples(batch):
        """Samples in a batch: the first dimension of the first tensor or list in it."""
        for _ in range(4):
            if hasattr(batch, "shape"):
                return batch.shape[0] if len(batch.shape) else -1
            if isinstance(batch, dict) and batch:
                batch = next(iter(batch.values()))
            elif isinstance(batch, (list, tuple)) and batch:
                if not hasattr(batch[0], "shape") and not isinstance(batch[0], (list, tuple, dict)):
                    return len(batch)
                batch = batch[0]
            else:
                return -1
        return -1

    numbers = {"loader": 0}

    def new_loader():
        numbers["loader"] += 1
        return numbers["loader"] - 1

    # ---- PyTorch ----

    def prepare_torch_loader(module):
        loader_class, iterator_class = module.DataLoader, module._BaseDataLoaderIter
        original_iter, original_next = loader_class.__iter__, iterator_class.__next__

        def describe(loader):
            number = new_loader()
            loader.__dict__["_feedline_loader"] = number
            workers = quietly(lambda: loader.num_workers, 0)
            context = quietly(lambda: loader.multiprocessing_context, None)
            if context is None and workers:
                import multiprocessing

                context = multiprocessing
            method = quietly(lambda: START_METHODS.get(context.get_start_method(), 0), 0) if workers else 0
            iterable = quietly(lambda: loader._dataset_kind == module._DatasetKind.Iterable, False)
            persistent = bool(quietly(lambda: loader.persistent_workers, False))
            pinned = bool(quietly(lambda: loader.pin_memory, False))
            about = (min(workers, 0xFFFF) | persistent << 16 | iterable << 17 | method << 18 | pinned << 20
                     | PYTORCH << 24)
            batch = quietly(lambda: loader.batch_size, None)
            if batch is None:
                batch = quietly(lambda: loader.batch_sampler.batch_size, None) or 0
            prefetch = quietly(lambda: loader.prefetch_factor, None) or 0
            mark(LOADER, number, about, batch | prefetch << 32)

        def begin(loader):
            if "_feedline_loader" not in loader.__dict__:
                describe(loader)
            epoch = loader.__dict__.get("_feedline_epoch", -1) + 1
            loader.__dict__["_feedline_epoch"] = epoch
            number = loader.__dict__["_feedline_loader"]
            mark(EPOCH_BEGIN, number, epoch, quietly(lambda: len(loader), -1))
            if quietly(lambda: loader.num_workers, 0):
                mark(MODULES, len(sys.modules), 0, 0)
            return number, epoch

        @functools.wraps(original_iter)
        def __iter__(self):
            which = quietly(lambda: begin(self), None)
            iterator = original_iter(self)
            # A data loader whose subclass returns another iterator has no batches that can be seen.
            if which is not None and isinstance(iterator, iterator_class):
                iterator.__dict__["_feedline"] = [which[0], which[1], 0]
            return iterator

        def waits(iterator, state):
            """Batch and worker of the next batch."""
            batch, worker = state[2], -1
            if hasattr(iterator, "_task_info"):
                expected = iterator._rcvd_idx
                task = iterator._task_info.get(expected)
                # Workers of an iterable data set that ended have a task without data: the next one counts.
                while task is not None and expected < iterator._send_idx:
                    alive = quietly(lambda: iterator._workers_status[task[0]], True)
                    if len(task) == 2 or alive:
                        worker = task[0]
                        break
                    expected += 1
                    task = iterator._task_info.get(expected)
            return batch, worker

        @functools.wraps(original_next)
        def __next__(self):
            state = self.__dict__.get("_feedline")
            if state is None:
                return original_next(self)
            batch, worker = quietly(lambda: waits(self, state), (state[2], -1))
            mark(WAIT_BEGIN, state[0], batch, worker)
            try:
                data = original_next(self)
            except StopIteration:
                mark(WAIT_END, state[0], -1, -1)
                mark(EPOCH_END, state[0], state[1], 0)
                raise
            mark(WAIT_END, state[0], batch, quietly(lambda: count_samples(data), -1))
            state[2] += 1
            return data

        loader_class.__iter__ = __iter__
        iterator_class.__next__ = __next__

    def prepare_torch_worker(module):
        original = module._worker_loop

        # wraps: a worker that is spawned finds the function by its name, and so gets the one of its own process.
        @functools.wraps(original)
        def _worker_loop(*arguments, **named):
            def announce():
                code = original.__code__
                names = code.co_varnames[:code.co_argcount]
                given = dict(zip(names, arguments))
                given.update(named)
                mark(WORKER, given.get("worker_id", -1), given.get("num_workers", -1), 0)
                mark(MODULES, len(sys.modules), 1, 0)

            quietly(announce, None)
            return original(*arguments, **named)

        module._worker_loop = _worker_loop

    def prepare_torch_fetch(module):
        def wrap(fetcher):
            original = fetcher.fetch

            @functools.wraps(original)
            def fetch(self, possibly_batched_index):
                mark(FETCH_BEGIN, quietly(lambda: len(possibly_batched_index), 1), 0, 0)
                try:
                    data = original(self, possibly_batched_index)
                except StopIteration:
                    mark(FETCH_END, 0, 1, 0)
                    raise
                except BaseException:
                    mark(FETCH_END, 0, 0, 0)
                    raise
                mark(FETCH_END, quietly(lambda: count_samples(data), -1), 0, 0)
                return data

            fetcher.fetch = fetch

        wrap(module._IterableDatasetFetcher)
        wrap(module._MapDatasetFetcher)

    def prepare_torch_save(module):
        original = module.save

        @functools.wraps(original)
        def save(*arguments, **named):
            mark(CHECKPOINT, 1, 0, 0)
            try:
                return original(*arguments, **named)
            finally:
                mark(CHECKPOINT, 0, 0, 0)

        module.save = save

    # ---- TensorFlow ----

    def prepare_tensorflow(module):
        iterator_class = module.OwnedIterator
        original_init, original_next = iterator_class.__init__, iterator_class.__next__
        loaders = {}

        def begin(iterator, dataset):
            key = id(dataset)
            known = loaders.get(key)
            # A number may belong to another data set now: it is the same one only if the object still exists.
            if known is None or known[2]() is not dataset:
                import weakref

                known = loaders[key] = [new_loader(), -1, weakref.ref(dataset)]
                mark(LOADER, known[0], TENSORFLOW << 24, quietly(lambda: batch_size(dataset), 0))
            known[1] += 1
            expected = quietly(lambda: int(dataset.cardinality()), -1)
            mark(EPOCH_BEGIN, known[0], known[1], expected if expected >= 0 else -1)
            iterator._feedline = [known[0], known[1], 0]

        def batch_size(dataset):
            while dataset is not None:
                size = getattr(dataset, "_batch_size", None)
                if size is not None:
                    return int(size)
                dataset = getattr(dataset, "_input_dataset", None)
            return 0

        def is_eager():
            from tensorflow.python.framework import ops

            return ops.executing_eagerly_outside_functions() and not ops.inside_function()

        @functools.wraps(original_init)
        def __init__(self, dataset=None, *arguments, **named):
            original_init(self, dataset, *arguments, **named)
            if dataset is not None and quietly(is_eager, False):
                quietly(lambda: begin(self, dataset), None)

        @functools.wraps(original_next)
        def __next__(self):
            state = getattr(self, "_feedline", None)
            if state is None:
                return original_next(self)
            mark(WAIT_BEGIN, state[0], state[2], -1)
            try:
                data = original_next(self)
            except StopIteration:
                mark(WAIT_END, state[0], -1, -1)
                mark(EPOCH_END, state[0], state[1], 0)
                raise
            mark(WAIT_END, state[0], state[2], quietly(lambda: count_samples(data), -1))
            state[2] += 1
            return data

        iterator_class.__init__ = __init__
        iterator_class.__next__ = __next__

    def keras_callback(base):
        """Epochs and steps of `fit`, whose batches are taken inside a compiled function."""

        class Marks(base):
            def __init__(self):
                super(Marks, self).__init__()
                self.feedline_number = new_loader()

            def on_epoch_begin(self, epoch, logs=None):
                steps = quietly(lambda: self.params.get("steps"), None)
                mark(EPOCH_BEGIN, self.feedline_number, epoch, -1 if steps is None else steps)

            def on_epoch_end(self, epoch, logs=None):
                mark(EPOCH_END, self.feedline_number, epoch, 0)

            def on_train_batch_begin(self, batch, logs=None):
                mark(STEP, self.feedline_number, batch, 1)

            def on_train_batch_end(self, batch, logs=None):
                mark(STEP, self.feedline_number, batch, 0)

        return Marks

    def prepare_keras(module):
        """`module` has the class of the back end whose `fit` runs the loop, and the base class of callbacks."""
        trainer = getattr(module, "TensorFlowTrainer", None) or module.Model
        original = trainer.fit
        # fit takes the list by position as well: (x, y, batch_size, epochs, verbose, callbacks, ...).
        place = 5

        def callbacks_class():
            keras = sys.modules.get("keras") or sys.modules["tensorflow"].keras
            return keras.callbacks.Callback

        def with_marks(arguments, named):
            base = callbacks_class()
            ours = keras_callback(base)()
            given = arguments[place] if len(arguments) > place else named.get("callbacks")
            if given is not None and not isinstance(given, (list, tuple)):
                # A CallbackList of the user, or a single callback.
                if not hasattr(given, "append"):
                    given = [given]
            if given is None:
                given = []
            if hasattr(given, "append") and not isinstance(given, list):
                given.append(ours)
            else:
                given = list(given) + [ours]
            batch = named.get("batch_size") or (arguments[2] if len(arguments) > 2 else 0) or 0
            mark(LOADER, ours.feedline_number, KERAS << 24, quietly(lambda: int(batch), 0))
            if len(arguments) > place:
                return arguments[:place] + (given,) + arguments[place + 1:], named
            return arguments, dict(named, callbacks=given)

        @functools.wraps(original)
        def fit(self, *arguments, **named):
            arguments, named = quietly(lambda: with_marks(arguments, named), (arguments, named))
            return original(self, *arguments, **named)

        trainer.fit = fit

    prepared = {
        "torch.utils.data.dataloader": (1, prepare_torch_loader),
        "torch.utils.data._utils.worker": (2, prepare_torch_worker),
        "torch.utils.data._utils.fetch": (3, prepare_torch_fetch),
        "torch.serialization": (6, prepare_torch_save),
        "tensorflow.python.data.ops.iterator_ops": (4, prepare_tensorflow),
        "keras.src.backend.tensorflow.trainer": (5, prepare_keras),
        "keras.engine.training": (5, prepare_keras),
        "tensorflow.python.keras.engine.training": (5, prepare_keras),
    }

    def prepare(name, module):
        number, change = prepared[name]
        try:
            change(module)
            mark(PREPARED, number, 1, 0)
        except Exception as error:
            mark(PREPARED, number, 0, 0)
            note("cannot mark %s: %s: %s" % (name, type(error).__name__, error))

    class Finder(importlib.abc.MetaPathFinder):
        """Waits for the modules above, and changes each right after it was executed."""

        searching = False

        def find_spec(self, name, path=None, target=None):
            if name not in prepared or self.searching:
                return None
            self.searching = True
            try:
                import importlib.util

                spec = importlib.util.find_spec(name)
                if spec is None or spec.loader is None:
                    return None
                loader = spec.loader
                execute = loader.exec_module

                def exec_module(module):
                    execute(module)
                    prepare(name, module)

                loader.exec_module = exec_module
                return spec
            except Exception as error:
                note("cannot wait for %s: %s: %s" % (name, type(error).__name__, error))
                return None
            finally:
                self.searching = False

    sys.meta_path.insert(0, Finder())
    for name in prepared:
        if name in sys.modules:
            prepare(name, sys.modules[name])
    quietly(lambda: watch_opens(mark, text), None)


def watch_opens(mark, text):
    """Marks the call sites of opens: the first frame that is neither Python's own nor that of an installed package."""
    import sysconfig

    skipped = [os.path.abspath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
    skipped = tuple(folder + os.sep for folder in set(skipped)) + ("<frozen",)
    packages = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
    own = os.path.abspath(__file__)
    judged, sites = {}, {}
    opens = [0]

    def is_foreign(path):
        known = judged.get(path)
        if known is None:
            whole = path if path.startswith("<") else os.path.abspath(path)
            known = (whole.startswith(skipped) or any(part in whole for part in packages)
                     or whole == own or path.startswith("<"))
            judged[path] = known
        return known

    def watch(event, arguments):
        if event != "open":
            return
        opens[0] += 1
        number = opens[0]
        if number > SITES_AT_FIRST and number % SITES_AFTERWARDS:
            return
        try:
            # Modules are imported by frames of importlib, whose names start with "<frozen".
            frame = sys._getframe(1)
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
                if len(sites) >= 4096:
                    return
                site = sites[key] = len(sites) + 1
                code = frame.f_code
                text(TEXT_SITE, site, "%s:%d in %s" % (code.co_filename, frame.f_lineno, code.co_name))
            mark(SITE, site, 0, 0)
        except Exception:
            pass

    if hasattr(sys, "addaudithook"):
        sys.addaudithook(watch)


def main():
    functions = connect()
    if functions is not None:
        try:
            start(*functions)
        except Exception as error:
            message = ("marks failed: %s: %s" % (type(error).__name__, error)).encode("utf-8", "replace")
            functions[1](TEXT_NOTE, 0, message, len(message))


main()
run_other_sitecustomize()
