"""A logistic regression by stochastic gradient descent on the summary features."""

import argparse
import csv
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import roc_auc_score


def say(event, **more):
    """Print an event as a line of JSON."""
    print(json.dumps({"event": event, **more}), flush=True)


def load(data, mode):
    """Features (windows, inputs), labels and hosts (windows,) of the labelled windows."""
    schema = json.loads((data / "feature_schema_v1.json").read_text())
    names = [name for name, one in schema["features"].items() if mode in one["modes"]]
    index = pq.read_table(data / "validation_v1.parquet", columns=["host", "label"])
    table = pq.read_table(data / "features_window_v1.parquet", columns=names)
    features = np.column_stack([table[name].to_numpy() for name in names]).astype(float)
    label, host = index["label"].to_numpy(), np.array(index["host"].to_pylist())
    known = label >= 0
    return names, features[known], label[known], host[known]


def main():
    """Train, measure and store the model; return the exit code."""
    parser = argparse.ArgumentParser()
    for name in ("--mode", "--data", "--out-dir"):
        parser.add_argument(name, required=True)
    parser.add_argument("--split-recipe", choices=["host"], default="host")
    parser.add_argument("--train-hosts", default="", help="a line of CSV")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--alpha", type=float, default=0.01)
    args, _ = parser.parse_known_args()

    say("phase", phase="load")
    names, features, label, host = load(Path(args.data), args.mode)
    hosts = sorted(set(host))
    chosen = next(csv.reader([args.train_hosts]), []) or hosts[: len(hosts) * 3 // 4]
    if unknown := sorted(set(chosen) - set(hosts)):
        say("error", kind="bad_input", message=f"train_hosts: no data of {', '.join(unknown)}")
        return 2
    train = np.isin(host, chosen)
    if any(len(set(label[part])) < 2 for part in (train, ~train)):
        say(
            "error", kind="bad_input", message="train_hosts: one part has a single class; add hosts"
        )
        return 2

    say("phase", phase="train")
    mean, scale = features[train].mean(axis=0), features[train].std(axis=0) + 1e-9
    inputs = (features - mean) / scale
    model = SGDClassifier(loss="log_loss", alpha=args.alpha, random_state=args.seed)
    for epoch in range(1, args.epochs + 1):
        model.partial_fit(inputs[train], label[train], classes=[0, 1])
        say("progress", epoch=epoch, epochs=args.epochs)

    say("phase", phase="evaluate")
    auroc = roc_auc_score(label[~train], model.decision_function(inputs[~train]))
    weights = {
        "inputs": names,
        "mean": mean.tolist(),
        "scale": scale.tolist(),
        "weight": model.coef_[0].tolist(),
        "bias": float(model.intercept_[0]),
    }
    out = Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    (out / "model.json").write_text(json.dumps(weights))
    say("result", metrics={"auroc": round(auroc, 6)}, files=["model.json"])
    return 0


sys.exit(main())
