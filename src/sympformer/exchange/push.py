"""A folder to the Hugging Face hub.

`HF_ENDPOINT` chooses another hub; `HF_TOKEN` or `hf auth login` says who you are.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sympformer.errors import InputError


def check_repository(name: str) -> None:
    """Refuse what cannot be the name of a repository, before any work."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise InputError(f"--push {name!r} is not OWNER/NAME: {_first_line(error)}") from error
    if name.count("/") != 1:
        raise InputError(f"--push {name!r} is not OWNER/NAME: say under whose name the model goes to the hub")


def push_folder(folder: Path, name: str, private: bool = False) -> str:
    """Make the repository if it is not there, and put the folder's files into it in one commit; returns its address."""
    from huggingface_hub import HfApi

    check_repository(name)
    api = HfApi(library_name="sympformer")
    with _friendly(folder, name):
        url = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(folder_path=folder, repo_id=name, commit_message="Upload a sympformer model")
    return str(url)


@contextmanager
def _friendly(folder: Path, name: str) -> Iterator[None]:
    """Turn the errors of the hub's library into one sentence; the folder stays for another try."""
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled

    again = f"the folder {folder} is whole: try again with 'hf upload {name} {folder}'"
    # the bases of the hub library's own error are the errors of whatever HTTP library it uses
    unreachable: tuple[type[BaseException], ...] = (ValueError, *HfHubHTTPError.__bases__)
    try:
        yield
    except LocalTokenNotFoundError as error:
        raise InputError(f"the hub wants to know who you are: log in with 'hf auth login'; {again}") from error
    except OfflineModeIsEnabled as error:
        raise InputError(f"HF_HUB_OFFLINE is set, so nothing goes to the hub; {again}") from error
    except HfHubHTTPError as error:
        if error.response is not None and error.response.status_code in (401, 403):
            raise InputError(
                f"the hub does not let you write to {name} (status {error.response.status_code}): "
                f"log in with 'hf auth login', with a token that may write; {again}"
            ) from error
        raise InputError(f"the hub refused {name}: {_first_line(error)}; {again}") from error
    except unreachable as error:
        raise InputError(f"the folder did not reach the hub ({_first_line(error)}); {again}") from error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
