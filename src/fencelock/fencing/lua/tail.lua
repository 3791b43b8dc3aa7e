end
return {1, (body())}
