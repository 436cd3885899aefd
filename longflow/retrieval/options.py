"""What a setting of kind `rag` may say."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from longflow.paths import PathText
from longflow.retrieval.identity import embedding_model_digest, tokenizer_digest


class RagOptions(BaseModel):
    """The context is replaced by those of its parts that fit the question best."""

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: Literal["rag"] = Field(description="rag: a context of retrieved chunks.")
    retriever: Literal["bm25_chars", "bm25_words", "dense"] = Field(
        description="How chunks are ranked: BM25 over characters as LongBench's reference does, BM25 over words, or by "
        "the embeddings of a model."
    )
    splitter: Literal["sentences", "token_windows"] = Field(
        "sentences",
        description="Sentences packed into chunks as LongBench's reference does, or windows of a number of tokens.",
    )
    chunk_size: int = Field(200, ge=1, description="Words (Chinese characters) of a chunk, or tokens of a window.")
    tokenizer: PathText | None = Field(
        None,
        validate_default=True,
        description="For token_windows: whose tokens; a folder, a hub id, or tiktoken:NAME.",
    )
    top_n: int = Field(7, ge=1, description="Chunks in the new context.")
    form: Literal["joined", "numbered"] = Field(
        "joined",
        description="Chunks joined by the separator, or as LongBench v2's reference has them: numbered, with blank "
        "lines between, in document order.",
    )
    order: Literal["score", "document"] = Field(
        "score", description="The best chunk first, as LongBench's reference does, or in the order of the document."
    )
    separator: str = Field("", description="Text between two chunks.")
    model: PathText | None = Field(
        None,
        validate_default=True,
        description="For dense: a folder or hub id of a sentence-transformers or plain encoder model, or the model's "
        "name on the server.",
    )
    revision: str | None = Field(
        None,
        description="For dense: revision of a model on the hub; default: its main branch. Only one that is "
        "pinned here is known to stay.",
    )
    trust_remote_code: bool = Field(False, description="For dense: whether code that comes with the model may run.")
    similarity: Literal["inner", "cosine"] = Field(
        "inner", description="For dense: inner product, as the reference does with mContriever, or cosine."
    )
    lowercase: bool = Field(False, description="For dense: lower-case texts first, as the reference for mContriever.")
    query_prefix: str | None = Field(
        None, description="For dense: text before a question; default: what the model's own files say, or none."
    )
    chunk_prefix: str | None = Field(
        None, description="For dense: text before a chunk; default: what the model's own files say, or none."
    )
    base_url: str | None = Field(
        None, description="For dense: an OpenAI-compatible server (.../v1) that gives the embeddings."
    )
    api_key_env: str = Field("OPENAI_API_KEY", description="Environment variable that holds the server's key.")
    gpu: int = Field(0, ge=0, le=1, description="For dense: GPUs that run the model, 0 or 1.")

    @property
    def document_order(self) -> bool:
        """Whether chunks stand in the order of the document."""
        return self.order == "document" or self.form == "numbered"

    def spec(self) -> dict[str, Any]:
        """What of the options may change a context; the number of GPUs, an address and a key may not.

        Of a model or tokenizer in a folder a digest is part of it, so that one trained anew in its old place is
        noticed. Raises UserError for one with a torn or missing file.
        """
        kept = self.model_dump(exclude={"gpu", "base_url", "api_key_env", "order"})
        order = "document" if self.document_order else "score"
        files = {
            "model": embedding_model_digest(self.model) if self.model and self.base_url is None else None,
            "tokenizer": tokenizer_digest(self.tokenizer) if self.tokenizer else None,
        }
        return {**kept, "order": order, "from_server": self.base_url is not None, "files": files}

    @field_validator("tokenizer")
    @classmethod
    def _tokenizer_goes_with_windows(cls, value: str | None, info: ValidationInfo) -> str | None:
        return _goes_with(value, "tokenizer", "splitter", "token_windows", info)

    @field_validator("model")
    @classmethod
    def _model_goes_with_dense(cls, value: str | None, info: ValidationInfo) -> str | None:
        return _goes_with(value, "model", "retriever", "dense", info)

    @field_validator("base_url")
    @classmethod
    def _server_goes_with_dense(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None:
            _goes_with(value, "server", "retriever", "dense", info)
            if not value.startswith(("http://", "https://")):
                raise ValueError("an address that begins with http:// or https:// was expected")
        return value

    @field_validator("order", "separator")
    @classmethod
    def _numbered_decides(cls, value: str, info: ValidationInfo) -> str:
        # Only what was written down gets here, not the defaults.
        fixed = {"order": "document", "separator": "\n\n"}[str(info.field_name)]
        if info.data.get("form") == "numbered" and value != fixed:
            raise ValueError(f"with form: numbered it is {fixed!r}")
        return value


def _goes_with(value: str | None, what: str, key: str, choice: str, info: ValidationInfo) -> str | None:
    """The value, if it is there exactly when `key` is `choice`. Raises ValueError."""
    chosen = info.data.get(key)  # absent if it is wrong itself
    if value is None and chosen == choice:
        raise ValueError(f"{key}: {choice} needs a {what}")
    if value is not None and chosen is not None and chosen != choice:
        raise ValueError(f"{key}: {chosen} has no use for a {what}, only {choice} has")
    return value
