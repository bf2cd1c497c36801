# ladder.gp - the error after every layer, one curve for each precision class.
# Usage: gnuplot -d -e "data='ladder.dat'; out='ladder.svg'" reports/ladder.gp      (title='...' is optional)
# One block for each class: its name alone on the first line, then (step, relative L2, label) for the features, every
# layer's output and the final rows. An error of zero stands on the floor 1e-12, one that is not finite at 1e1.
if (!exists("data")) data = "reports/out/ladder.dat"
if (!exists("out")) out = "reports/out/ladder.svg"
if (!exists("title")) title = "Error after each layer, by precision class"
set terminal svg size 960,460 dynamic noenhanced standalone font "sans-serif,15" background rgb "white"
set output out
set title title
set logscale y
set yrange [2e-13:2e2]
set ytics ("bit-equal" 1e-12, "1e-10" 1e-10, "1e-8" 1e-8, "1e-6" 1e-6, "1e-4" 1e-4, "1e-2" 1e-2, "1" 1, "not finite" 10)
set ylabel "relative L2 error against float64" offset -1.5,0
set grid ytics lc rgb "#9a9a9a" lw 0.5 dt 3
set xtics rotate by 35 right font ",12" nomirror
set lmargin 15
set offsets 0.3, 0.3, 0, 0
set key outside right center samplen 2
array colour[6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]
stats data using 1 nooutput name "S"
plot for [i = 0:S_blocks - 1] data index i using 1:2:xtic(3) with linespoints lc rgb colour[i % 6 + 1] lw 2 \
     dt i / 6 + 1 pt 5 + 2 * (i % 5) ps 0.7 title columnheader(1)
