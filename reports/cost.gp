# cost.gp - what a round costs against the context and against the number of rounds already run.
# Usage: gnuplot -d -e "data='reports/out/cost.txt'; out='reports/out/cost.svg'" reports/cost.gp
# The data is what `dflash-parity bench --sweep FILE` writes: two blocks, two columns each.
if (!exists("data")) data = "reports/out/cost.txt"
if (!exists("out")) out = "reports/out/cost.svg"
set terminal svg size 960,400 dynamic noenhanced font "sans-serif,12" background rgb "white"
set output out
set multiplot layout 1,2
set style line 1 lc rgb "#1f5fa8" lw 2 pt 7 ps 0.6
set grid lc rgb "#dddddd"
set yrange [0:*]
set ylabel "forward_round, milliseconds"
f(x) = a + b * x
set fit quiet nolog
fit f(x) data index 0 using 1:2 via a, b
set title "against the context"
set xlabel "context rows"
set key bottom right
plot data index 0 using 1:2 with points ls 1 title "measured", f(x) lc rgb "#a83a1f" lw 1 dt 2 title sprintf("%.1f ms + %.2f ms per 1000 rows", a, 1000 * b)
set title "against the rounds already run"
set xlabel "rounds"
unset key
plot data index 1 using 1:2 with points ls 1
unset multiplot
