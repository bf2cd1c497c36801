# scatter.gp - the elements of one stage, got against reference. A point off the diagonal is an error that can be seen.
# Usage: gnuplot -d -e "data='scatter.dat'; out='scatter.svg'" reports/scatter.gp      (title='...' is optional)
# Blocks of the data: points (reference, got), worst (reference, got), not-finite (reference, height to draw at),
# diagonal (two ends).
if (!exists("data")) data = "reports/out/scatter.dat"
if (!exists("out")) out = "reports/out/scatter.svg"
if (!exists("title")) title = "Got against reference"
set terminal svg size 960,560 dynamic noenhanced standalone font "sans-serif,15" background rgb "white"
set output out
set title title
set grid lc rgb "#9a9a9a" lw 0.5 dt 3
set xlabel "reference (float64)"
set ylabel "got (float32)"
set format x "%g"
set format y "%g"
set lmargin 12
set rmargin 4
set key at graph 0.5, screen 0.01 center bottom horizontal Left reverse samplen 2 width -2 font ",13"
set bmargin 5.2
# Points at the ends of the range stand inside the frame.
set autoscale fix
set offsets graph 0.03, graph 0.03, graph 0.03, graph 0.03
plot data index "diagonal" using 1:2 with lines lc rgb "#9a9a9a" lw 1.5 title "got = reference", \
     data index "points" using 1:2 with points lc rgb "#0072b2" pt 7 ps 0.35 title "elements", \
     data index "worst" using 1:2 with points lc rgb "#0072b2" pt 7 ps 0.35 notitle, \
     data index "worst" using 1:2 with points lc rgb "#d55e00" pt 6 ps 1.6 lw 2 title "the worst", \
     data index "not-finite" using 1:2 with points lc rgb "#d55e00" pt 2 ps 0.9 lw 2 title "not finite"
