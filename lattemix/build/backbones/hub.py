"""Backbones from the Hugging Face hub, in the hub client's own cache."""

from pathlib import Path

from lattemix.build.backbones.checkpoint import CONFIG, TOKENIZER, pickle_problem, read_config
from lattemix.build.backbones.weights import (
    INDEX,
    WEIGHTS,
    BackboneError,
    shard_names,
    weight_files,
)


class HubError(BackboneError):
    """The hub cannot be reached or has no such model, or the name cannot be one of its."""


def download(repository: str) -> Path:
    """Return the directory of a repository's backbone, downloaded if it is not cached.

    The weights come last: a config of an unsupported model is refused before.
    """
    directory = _snapshot(repository, None, [CONFIG, TOKENIZER, INDEX])
    read_config(directory, repository)
    index = directory / INDEX
    names = shard_names(index) if index.is_file() else [WEIGHTS]
    _snapshot(repository, directory.name, names)
    if not weight_files(directory) and (pickles := _pickles(repository, directory.name)):
        raise BackboneError(pickle_problem(repository, pickles[0]))
    return directory


def _snapshot(repository: str, commit: str | None, names: list[str]) -> Path:
    """The directory of a commit's snapshot, with those of the named files that it has."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

    try:
        return Path(snapshot_download(repository, revision=commit, allow_patterns=names))
    except HFValidationError as error:
        raise HubError(f"There is no backbone {repository!r}.") from error
    except GatedRepoError as error:
        raise BackboneError(
            f"{repository!r} is gated: accept its terms on the hub, and log in with "
            "`hf auth login` or HF_TOKEN."
        ) from error
    except RepositoryNotFoundError as error:
        raise HubError(
            f"There is no backbone {repository!r}: the hub has no such public model (a private one "
            "needs `hf auth login` or HF_TOKEN), and there is no directory or file of that name."
        ) from error
    except Exception as error:  # the client's errors for network and disk share no other base
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise HubError(
            f"Cannot download {repository!r} from the hub: {reason}. There is no directory or file "
            "of that name."
        ) from error


def _pickles(repository: str, commit: str) -> list[str]:
    """The names of the repository's pickled weights; none if the hub cannot be reached."""
    from huggingface_hub import HfApi

    try:
        files = HfApi().list_repo_files(repository, revision=commit)
    except Exception:  # offline; the general message about missing weights is true as well
        return []
    return sorted(name for name in files if Path(name).match("pytorch_model*.bin"))
