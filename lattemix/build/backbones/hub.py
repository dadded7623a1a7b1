"""Backbones from the Hugging Face hub, in the hub client's own cache."""

from pathlib import Path

from lattemix.build.backbones.checkpoint import (
    CONFIG,
    SAFETENSORS,
    SHARD_INDEX,
    BackboneError,
    pickle_error,
    read_config,
    shard_names,
    weight_files,
)
from model_store.manifest import TOKENIZER


class HubError(BackboneError):
    """The hub cannot be reached, or it has no such model."""


def download(repository: str) -> Path:
    """Return the directory of a repository's backbone, downloaded if it is not cached.

    The weights are downloaded last: an unsupported config fails before.
    """
    directory = snapshot(repository, None, [CONFIG, TOKENIZER, SHARD_INDEX])
    read_config(directory, repository)
    index = directory / SHARD_INDEX
    names = shard_names(index) if index.is_file() else [SAFETENSORS]
    snapshot(repository, directory.name, names)
    if not weight_files(directory) and (pickles := _pickles(repository, directory.name)):
        raise pickle_error(repository, pickles[0])
    return directory


def snapshot(repository: str, revision: str | None, names: list[str]) -> Path:
    """Download the named files, where they exist; return the snapshot's directory.

    Args:
        repository: the repository's id.
        revision: a commit, branch or tag; None is the default branch.
        names: the files.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=names))
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
            "needs `hf auth login` or HF_TOKEN)."
        ) from error
    except Exception as error:  # the client's network and disk errors have no common base class
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise HubError(f"Cannot download {repository!r} from the hub: {reason}.") from error


def _pickles(repository: str, commit: str) -> list[str]:
    """The names of the repository's pickled weights; empty if the hub cannot be reached."""
    from huggingface_hub import HfApi

    try:
        files = HfApi().list_repo_files(repository, revision=commit)
    except Exception:  # offline: the message about missing weights is raised instead
        return []
    return sorted(name for name in files if Path(name).match("pytorch_model*.bin"))
