"""The code in docs/checkpoint-layout.md reads a checkpoint with h5py alone. Threads may use our HDF5 and h5py's at
once."""
import pathlib
import re
import subprocess

import pytest
import torch

import horovod.torch as hvd

h5py = pytest.importorskip("h5py")
numpy = pytest.importorskip("numpy")
PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "checkpoint-layout.md"


@pytest.fixture(scope="module", autouse=True)
def alone():
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture(scope="module")
def page():
    found = {}
    exec(re.search(r"```python\n(.*?)```", PAGE.read_text(), re.S).group(1), found)  # runs the code of the page
    return found


def save(path, **options):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(30, 20), torch.nn.BatchNorm1d(20))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
    model(torch.randn(4, 30)).sum().backward()
    optimizer.step()
    extra = {
        "loss": 0.25, "name": "größer", "a/b": 3, "done": True, "nothing": None, "brain": torch.arange(600.).bfloat16(),
        "complex": torch.randn(3, dtype=torch.complex64), "flags": torch.tensor([True, False]),
        "scalar": torch.tensor(2), "half": torch.randn(900).half(), "many": {f"k{i}": i for i in range(300)}
    }
    hvd.checkpoint.save(path, model, optimizer, step=12, extra=extra, **options)
    return model, optimizer, extra


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_the_page_is_enough_to_read_a_checkpoint_with_h5py(page, tmp_path, compression):
    model, optimizer, extra = save(tmp_path / "a.h5", compression=compression)
    found = page["load"](tmp_path / "a.h5")
    assert found["step"] == 12 and found["ranks"] == 1 and found["saved_at"].endswith("Z")
    for name, value in model.state_dict().items():
        assert numpy.array_equal(found["model"][name], value.numpy()), name
    assert found["optimizer"]["param_groups"]["0"]["lr"] == 0.5
    assert found["optimizer"]["param_groups"]["0"]["betas"].tolist() == [0.9, 0.999]
    weight = optimizer.state[model[0].weight]["exp_avg"].numpy()
    assert numpy.array_equal(found["optimizer"]["state"]["0.weight"]["exp_avg"], weight)
    mine = found["extra"]
    assert (mine["loss"], mine["name"], mine["a/b"], bool(mine["done"]), mine["nothing"]) == (0.25, "größer", 3, True,
                                                                                              None)
    assert mine["brain"].tolist() == extra["brain"].float().tolist()
    assert mine["flags"].dtype == bool and mine["flags"].tolist() == [True, False]
    assert numpy.array_equal(mine["complex"], extra["complex"].numpy()) and mine["scalar"] == 2
    assert mine["half"].dtype == numpy.float16 and numpy.array_equal(mine["half"], extra["half"].numpy())
    assert mine["many"]["k299"] == 299


def test_the_page_notices_a_damage(page, tmp_path):
    save(tmp_path / "a.h5")
    data = bytearray((tmp_path / "a.h5").read_bytes())
    data[5000] ^= 4
    (tmp_path / "a.h5").write_bytes(data)
    with pytest.raises(AssertionError):
        page["verify"](tmp_path / "a.h5")


def test_h5dump_shows_the_names(tmp_path):
    save(tmp_path / "a.h5")
    try:
        shown = subprocess.run(["h5dump", "-H", tmp_path / "a.h5"], capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        pytest.skip("no h5dump here")
    assert 'DATASET "0.weight"' in shown and 'ATTRIBUTE "step"' in shown


def test_both_are_used_by_threads_at_once(tmp_path):
    import threading
    failures = []

    def read_and_write(number):
        try:
            for i in range(60):
                with h5py.File(tmp_path / f"{number}.other", "w") as file:
                    file["x"] = numpy.arange(1000) + i
                with h5py.File(tmp_path / f"{number}.other") as file:
                    assert file["x"][5] == 5 + i
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=read_and_write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        save(tmp_path / "a.h5")
        hvd.checkpoint.restore(tmp_path / "a.h5", torch.nn.Sequential(torch.nn.Linear(30, 20),
                                                                      torch.nn.BatchNorm1d(20)))
    for thread in threads:
        thread.join()
    assert not failures
