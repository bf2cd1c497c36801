# ulp.gp - how many elements of a stage are off by how many units in the last place of float32.
# Usage: gnuplot -d -e "data='ulp.dat'; out='ulp.svg'" reports/ulp.gp      (title='...' is optional)
# Blocks of the data: bins (position, share of the elements in percent, label), not-finite (position, share, label).
if (!exists("data")) data = "reports/out/ulp.dat"
if (!exists("out")) out = "reports/out/ulp.svg"
if (!exists("title")) title = "Distance in units of the last place (ULP)"
set terminal svg size 960,400 dynamic noenhanced standalone font "sans-serif,15" background rgb "white"
set output out
set title title
set style fill solid 0.85 noborder
set boxwidth 0.8
set yrange [0:*]
set offsets 0.5, 0.5, 0, 0
set grid ytics lc rgb "#9a9a9a" lw 0.5 dt 3
set xtics rotate by 35 right font ",12" nomirror scale 0.4
set xlabel "|got - reference|, in ULP of float32 at the reference"
set ylabel "share of the elements, percent"
set lmargin 9
set key top right
plot data index "bins" using 1:2:xtic(3) with boxes lc rgb "#0072b2" notitle, \
     data index "not-finite" using 1:2:xtic(3) with boxes lc rgb "#d55e00" title "not finite"
