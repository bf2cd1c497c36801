# drift.gp - the share of the limit that runs have used over time, one curve for each case.
# Usage: gnuplot -d -e "data='drift.dat'; out='drift.svg'" reports/drift.gp      (title='...' is optional)
# One block for each case: its name alone on the first line, then (run, share of the limit, label of the run). A share of zero
# stands on the floor 1e-4, one that is not finite at 1e3.
if (!exists("data")) data = "reports/out/drift.dat"
if (!exists("out")) out = "reports/out/drift.svg"
if (!exists("title")) title = "Share of the limit used, run by run"
set terminal svg size 960,460 dynamic noenhanced standalone font "sans-serif,15" background rgb "white"
set output out
set title title
set logscale y
set yrange [5e-5:3e3]
set ytics ("bit-equal" 1e-4, "0.1 %%" 1e-3, "1 %%" 1e-2, "10 %%" 0.1, "the limit" 1, "10 times" 10, "100 times" 100, \
    "not finite" 1000)
set grid ytics lc rgb "#9a9a9a" lw 0.5 dt 3
set ylabel "largest error / limit"
set xtics rotate by 35 right font ",12" nomirror
set lmargin 15
set offsets 0.3, 0.3, 0, 0
set key outside right center samplen 2
array colour[6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]
stats data using 1 nooutput name "S"
plot 1 with lines lc rgb "#e69f00" lw 2 notitle, \
     for [i = 0:S_blocks - 1] data index i using 1:2:xtic(3) with linespoints lc rgb colour[i % 6 + 1] lw 2 \
     dt i / 6 + 1 pt 5 + 2 * (i % 5) ps 0.7 title columnheader(1)
