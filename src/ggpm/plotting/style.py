"""The style of all pictures: colours that people with any kind of colour vision can tell apart."""

# Okabe and Ito 2008, their yellow and black replaced by two that show on white
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#666666")
MEAN, BAND, POINTS = "#0B4F8A", "#3B8BC9", "#222222"
